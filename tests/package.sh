#!/usr/bin/env bash
# The installed tree and the Debian package: what `cmake --install` and CPack put where, what the package depends on, that
# the version is the git tag's, and the recipes in jobs/packages. With --root also: the package installed by apt in a bare
# Debian 12, where the program then trains on two ranks, and module files loaded by Lmod and Environment Modules.
#
# usage: tests/package.sh [--root DIR]     DIR: a bare Debian 12; one that does not exist is made by debootstrap (root only)
# environment: CONVOY_BUILD  the build folder (default build-package)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
root=''
case "${1:-}" in
  '') ;;
  --root) root=${2:?a folder} ;;
  *) die 2 "unknown argument '$1'; usage: tests/package.sh [--root DIR]" ;;
esac
build=${CONVOY_BUILD:-build-package}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pass() { echo "ok: $1"; }
fail() {
  echo "FAILED: $1"
  [ $# -lt 2 ] || tail -n 30 "$2"
  exit 1
}

# No GPU libraries: they are in no Debian package.
build_convoy "$build" all -DBUILD_TESTING=OFF -DWITH_CPU=ON -DWITH_CUDA=OFF
version=$("$build/app/convoy" --version | sed -n 's/^convoy //p')
[ -n "$version" ] || fail "convoy --version names no version"

# ---- cmake --install ----
cmake --install "$build" --prefix "$work/prefix" > "$work/install.txt" || fail "cmake --install" "$work/install.txt"
for file in bin/convoy share/bash-completion/completions/convoy share/zsh/vendor-completions/_convoy share/man/man1/convoy.1 \
  share/doc/convoy/README.md share/doc/convoy/LICENSE share/doc/convoy/configs/resnet18.conf \
  share/doc/convoy/{app,data,jobs,jobs/packages}/README.md share/doc/convoy/app/{FAQ,training}.md; do
  [ -s "$work/prefix/$file" ] || fail "$file is not installed" "$work/install.txt"
done
"$work/prefix/bin/convoy" --version > "$work/version.txt" || fail "the installed program does not start" "$work/version.txt"
! grep -qaF "$PWD/$build" "$work/prefix/bin/convoy" || ! readelf -d "$work/prefix/bin/convoy" | grep -E 'R(UN)?PATH' | grep -qF "$PWD" ||
  fail "the installed program finds its libraries in the build folder"
pass "cmake --install: the program, completions, manual page and documents"

# ---- the version is the tag's ----
if git rev-parse --git-dir > /dev/null 2>&1; then
  git clone -q --no-hardlinks . "$work/clone"
  git -C "$work/clone" -c user.name=test -c user.email=test@example.org tag -a -m test v9.8.7
  cmake -G Ninja -S "$work/clone" -B "$work/tagged" -DBUILD_TESTING=OFF -DWITH_CUDA=OFF > "$work/cmake.txt" 2>&1 || fail "CMake" "$work/cmake.txt"
  grep -q '^-- Convoy 9.8.7 (git tag)' "$work/cmake.txt" || fail "the version is not the tag's" "$work/cmake.txt"
  git -C "$work/clone" tag -d v9.8.7 > /dev/null
  if ! git -C "$work/clone" describe --tags --match 'v[0-9]*' > /dev/null 2>&1; then
    cmake "$work/tagged" > "$work/cmake.txt" 2>&1
    grep -q '^-- Convoy [0-9.]* (CMakeLists.txt, no git tag)' "$work/cmake.txt" || fail "no version without a tag" "$work/cmake.txt"
  fi
  pass "the version is that of the git tag, else CMakeLists.txt's"
fi

# ---- the package ----
(cd "$build" && rm -f ./*.deb && cpack -G DEB) > "$work/cpack.txt" 2>&1 || fail "cpack" "$work/cpack.txt"
deb=$(echo "$build"/convoy_*.deb)
[ -s "$deb" ] || fail "there is not one package" "$work/cpack.txt"
field() { dpkg-deb --field "$deb" "$1"; }
[ "$(field Version)" = "$version" ] || fail "the package's version is $(field Version), the program's $version"
depends=$(field Depends)
for package in libc6 openmpi-bin libopenmpi3 libhdf5 libdnnl libcjson1 libinih1 libarchive13 libjpeg62-turbo libpng16; do
  grep -q "\b$package" <<< "$depends" || fail "the package does not depend on $package: $depends"
done
dpkg-deb --contents "$deb" > "$work/contents.txt"
for file in ./usr/bin/convoy ./usr/share/man/man1/convoy.1 ./usr/share/bash-completion/completions/convoy; do
  grep -qE " $file(\.gz)?\$" "$work/contents.txt" || fail "the package lacks $file" "$work/contents.txt"
done
pass "$(basename "$deb") ($(($(stat -c %s "$deb") / 1024)) KiB) depends on: $depends"

# ---- recipes ----
python3 tests/recipe_check.py jobs/packages/spack/spack_repo/convoy/packages/convoy/package.py CMakeLists.txt > "$work/recipe.txt" 2>&1 ||
  fail "the Spack recipe" "$work/recipe.txt"
pass "the Spack recipe loads; its options are CMakeLists.txt's"
[ -n "$root" ] || { echo "left out: installation in a bare Debian (--root DIR)"; exit 0; }

# ---- a bare Debian 12 ----
[ "$(id -u)" = 0 ] || die 2 "--root needs root"
if [ ! -e "$root" ]; then
  command -v debootstrap > /dev/null || die 2 "$root does not exist and debootstrap is not installed"
  sources=/etc/apt/sources.list.d/debian.sources
  say "Making a bare Debian 12 in $root"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" \
    "$(awk '/^URIs/ { print $2; exit }' $sources 2> /dev/null || echo http://deb.debian.org/debian)" > "$work/debootstrap.txt" 2>&1 ||
    fail "debootstrap" "$work/debootstrap.txt"
  if [ -e $sources ]; then
    cp $sources "$root/etc/apt/sources.list.d/"
    : > "$root/etc/apt/sources.list"
    cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
  fi
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/tmp/package"
cp "$deb" "$root/tmp/package/convoy.deb"
mkdir -p "$root/opt/convoy" "$root/opt/modules/convoy"
rm -rf "$root/opt/convoy/1.0"
cp -r "$work/prefix" "$root/opt/convoy/1.0"
cp jobs/packages/convoy.lua "$root/opt/modules/convoy/1.0.lua"
mkdir -p "$root/opt/modules-tcl/convoy"
cp jobs/packages/convoy.tcl "$root/opt/modules-tcl/convoy/1.0"
cat > "$root/tmp/package/run.sh" << 'END'
set -eux
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
apt-get -q -y update
apt-get -q -y install --no-install-recommends --reinstall /tmp/package/convoy.deb
cd /tmp/package
convoy --version
test "$(command -v convoy)" = /usr/bin/convoy
convoy data synth data --size 16 --train 300 --test 100 --overwrite
mpirun --oversubscribe --bind-to none -np 2 convoy train --data data --out run --epochs 2 --threads 1 --overwrite
convoy eval --data data --checkpoint run | tail -1 | grep '"samples":100'
test -s /usr/share/bash-completion/completions/convoy
# module files, by the programs that read them, of which Debian has one at a time
load() {
  bash -c "$1"' && module load convoy/1.0 && test "$CONVOY_HOME" = /opt/convoy/1.0 &&
    test "$(command -v convoy)" = /opt/convoy/1.0/bin/convoy && convoy --version && module unload convoy &&
    test "$(command -v convoy)" = /usr/bin/convoy'
}
apt-get -q -y install --no-install-recommends environment-modules
load '. /usr/share/modules/init/bash && module use /opt/modules-tcl'
apt-get -q -y install --no-install-recommends lmod
load '. /usr/share/lmod/lmod/init/bash && module use /opt/modules'
apt-get -q -y remove convoy
test ! -e /usr/bin/convoy
END
# a mount namespace of its own: the mounts end with it
# shellcheck disable=SC2016 # $ROOT is the inner shell's
ROOT=$root unshare -m --propagation private bash -c '
  mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && { mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm" || :; }
  exec chroot "$ROOT" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /tmp/package/run.sh' > "$work/chroot.txt" 2>&1 < /dev/null ||
  fail "in the bare Debian" "$work/chroot.txt"
grep -E '^(convoy |\{"samples")|^epoch 2/2' "$work/chroot.txt"
pass "installed by apt in a bare Debian 12: it trains on two ranks; both module systems load its module file"
