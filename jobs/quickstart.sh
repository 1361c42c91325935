#!/usr/bin/env bash
# From a clone to an evaluated model with one command: installs what is missing, builds, finds images, makes shards,
# trains simplecnn on 2 CPU ranks, evaluates the checkpoint. A second call reuses all of it.
#
# usage: jobs/quickstart.sh [IMAGES]
# IMAGES (or the variable CONVOY_IMAGES) is an archive or a folder: CIFAR-10's binary version, or train|test/CLASS/*.jpg
# or *.png. Without it the official archive is downloaded; without a network a generated set stands in.
set -euo pipefail
images=${1:-${CONVOY_IMAGES:-}}
if [ -n "$images" ]; then
  [ -e "$images" ] || { echo "error: no images at '$images'; expected an archive or a folder" >&2; exit 2; }
  images=$(realpath "$images")
fi
[ $# -le 1 ] || { echo "error: $# arguments; usage: jobs/quickstart.sh [IMAGES]" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
need_packages build

build=${CONVOY_BUILD:-build}
testing=(-DBUILD_TESTING=OFF)
[ ! -e "$build/CMakeCache.txt" ] || testing=() # keep what tests/run.sh chose
build_convoy "$build" convoy "${testing[@]}"
convoy=$build/app/convoy

# ---- images ----
official=https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
official_md5=c32a1d4ab5d03f1284b67883e8d87530
mkdir -p runs/images

is_official() { [ -s "$1" ] && echo "$official_md5  $1" | md5sum --status -c -; }
download() { # download FILE: 0 if the official archive lies there
  local file=$1
  ! is_official "$file" || return 0
  if command -v curl >/dev/null; then
    say "Downloading CIFAR-10 (170 MB) from $official"
    curl -fL --silent --show-error --connect-timeout 8 --speed-limit 200000 --speed-time 15 --max-time 600 \
      -o "$file.part" "$official" </dev/null || { rm -f "$file.part"; return 1; }
  elif command -v wget >/dev/null; then
    say "Downloading CIFAR-10 (170 MB) from $official"
    wget -q --tries=1 --connect-timeout=8 --read-timeout=15 -O "$file.part" "$official" </dev/null ||
      { rm -f "$file.part"; return 1; }
  else
    say "Neither curl nor wget is installed: CIFAR-10 cannot be downloaded"
    return 1
  fi
  if ! is_official "$file.part"; then
    say "The download's MD5 is not $official_md5: it is not used"
    rm -f "$file.part"
    return 1
  fi
  mv "$file.part" "$file"
}

if [ -n "$images" ]; then
  kind=given
  say "Images: $images"
elif download runs/images/cifar-10-binary.tar.gz; then
  kind=cifar10
  images=runs/images/cifar-10-binary.tar.gz
  say "Images: CIFAR-10, $images"
else
  kind=generated
  say "Images: NONE found. A GENERATED set stands in: its accuracy says nothing about real images."
  say "For real ones give them: jobs/quickstart.sh cifar-10-binary.tar.gz"
fi

# ---- shards: made again only if the images are others ----
data=runs/data-$kind
out=runs/quickstart-$kind
stamp() {
  if [ -z "$images" ]; then
    echo generated 1
  elif [ -d "$images" ]; then
    printf '%s %s\n' "$images" "$(find -L "$images" -type f -printf '%P %s %T@\n' | sort | md5sum)"
  else
    stat -L -c '%n %s %Y' "$images"
  fi
}
if [ -e "$data.source" ] && [ "$(stamp)" = "$(cat "$data.source")" ]; then
  say "Shards: $data (kept from an earlier call)"
else
  say "Making shards in $data"
  rm -rf "$data" "$data.source" "$out"
  if [ -n "$images" ]; then
    "$convoy" data import "$images" "$data" </dev/null
  else
    "$convoy" data synth "$data" </dev/null
  fi
  stamp >"$data.source"
fi

# ---- train, evaluate ----
say "Training simplecnn on 2 ranks: 2 epochs, batch 128"
mpirun -n 2 "$convoy" train --config jobs/configs/simplecnn.conf --backend cpu --data "$data" --out "$out" --resume </dev/null
say "Evaluating the last checkpoint on the test images"
mpirun -n 2 "$convoy" eval --data "$data" --checkpoint "$out" --backend cpu </dev/null

launch="mpirun -n 2"
[ "$(id -u)" != 0 ] || launch="mpirun --allow-run-as-root -n 2"
note=
[ $kind != generated ] || note=$'NOTE         these images were generated; give real ones: jobs/quickstart.sh IMAGES\n'
cat <<END

Program      $convoy            (--help lists the commands, 'train --help' every option)
Shards       $data
Run          $out: run.json, loss.csv (a row every 20 steps), epochs.csv, checkpoints/
$note
Next         train longer:   $launch $convoy train --data $data --out runs/longer --config jobs/configs/simplecnn.conf --epochs 10
             a ResNet:       $launch $convoy train --data $data --out runs/resnet20 --config jobs/configs/resnet20.conf
             on two GPUs:    the same command lines; each rank takes a GPU (--backend auto)
END
