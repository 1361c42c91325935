#!/usr/bin/env bash
# Makes this folder's pictures: the report page of runs that lie in results/ (Chromium, light and dark), and the terminal in
# the second epoch of a run on the CPU (tmux).
#
# usage: results/pictures/make.sh BUILD SHARDS        e.g. results/pictures/make.sh build shards/cifar10
set -euo pipefail
[ $# = 2 ] || { sed -n '5p' "${BASH_SOURCE[0]}" | sed 's/^# //'; exit 2; }
convoy=$(readlink -f "$1/app/convoy") shards=$(readlink -f "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
here=$PWD/results/pictures readers=$PWD/build-readers
need_readers "$readers"
work=$(mktemp -d)
terminal() { tmux -S "$work/tmux" -f /dev/null "$@"; }
trap 'terminal kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

say "The report page"
cp -r results/h200-two-gpus/resnet18-n2 "$work/resnet18-two-gpus"
cp -r results/h200-one-gpu/resnet18-n1 "$work/resnet18-one-gpu"
cp -r results/h200-one-gpu/simplecnn-n1-seed0 "$work/simplecnn-one-gpu"
(cd "$work" && "$convoy" report resnet18-two-gpus resnet18-one-gpu simplecnn-one-gpu --out page.html)
for scheme in light dark; do
  set -- --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" --hide-scrollbars
  [ $scheme = light ] || set -- "$@" --blink-settings=preferredColorScheme=0
  chromium "$@" --window-size=1100,1500 --screenshot="$work/page.png" "file://$work/page.html" >/dev/null 2>&1
  "$readers/python/bin/python" - "$work/page.png" "$here/report-$scheme.png" <<'PYTHON'
import sys
from PIL import Image
Image.open(sys.argv[1]).convert("RGB").crop((0, 0, 1100, 1345)).quantize(200, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)
PYTHON
done

say "The terminal"
ln -s "$convoy" "$work/convoy"
ln -s "$shards" "$work/cifar10"
terminal new-session -d -x 146 -y 24 "cd $work && PATH=$work:$PATH PS1='\$ ' bash --norc --noprofile -i"
terminal send-keys "clear" Enter
sleep 1
terminal send-keys "mpirun -n 2 convoy train --data cifar10 --out run --backend cpu --epochs 2" Enter
for _ in $(seq 1200); do
  terminal capture-pane -p >"$work/screen.txt"
  ! grep -Eq '^epoch 2/2  step (5|6)[0-9][0-9]/.*\[' "$work/screen.txt" || break
  sleep 0.1
done
python3 "$here/terminal_svg.py" "$work/screen.txt" "$here/terminal.svg"
ls -l "$here"
