#!/usr/bin/env bash
# Packs a build for a Linux machine that has the GPU driver and the CUDA libraries but neither MPI nor HDF5 nor root:
# the program, the suites that run on a backend or on CUDA alone, the libraries they need (not libc, not CUDA's) and
# Open MPI's launcher, for one host. results/measure.sh takes the archive as CONVOY_BUILD.
#
# usage: results/bundle.sh BUILD FILE.tar.xz        then there: app/convoy, bin/mpirun -n 2 app/convoy …
set -euo pipefail
[ $# = 2 ] || { sed -n '6p' "${BASH_SOURCE[0]}" | sed 's/^# //'; exit 2; }
build=$1 archive=$2
[ -x "$build/app/convoy" ] || { echo "error: no program at '$build/app/convoy'; build first" >&2; exit 2; }
plugins=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p')
[ -d "$plugins" ] || { echo "error: no Open MPI plugins at '$plugins'; expected Debian's Open MPI 4.1" >&2; exit 2; }
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
inside=${plugins#/usr/} # Open MPI looks there below OPAL_PREFIX
mkdir -p "$top"/{app,tests,bin,real,lib,share} "$top/$inside"

place() { # place FILE NAME FOLDER: the stripped binary in real/, a wrapper that finds its libraries in FOLDER
  strip -o "$top/real/$2" "$1"
  cat >"$top/$3/$2" <<'WRAPPER'
#!/bin/sh
# Finds the bundle's libraries, then CUDA's: the toolkit's, or those of Python's nvidia packages.
top=$(cd "$(dirname "$0")/.." && pwd)
export PMIX_MCA_pcompress_base_silence_warning=1
export OPAL_PREFIX="$top" PMIX_INSTALL_PREFIX="$top" OMPI_MCA_btl=^openib,ofi OMPI_MCA_pml=ob1
export OMPI_MCA_plm_rsh_agent=sh # one host: no ssh is needed, but Open MPI insists on an agent
paths=$top/lib
for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu $CONVOY_CUDA_PATHS; do paths=$paths:$folder; done
export LD_LIBRARY_PATH="$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$top/real/$(basename "$0")" "$@"
WRAPPER
  chmod +x "$top/$3/$2"
}
place "$build/app/convoy" convoy app
for suite in "$build"/tests/test_*_on_backend "$build"/tests/test_cuda_* "$build/tests/compare_arrays"; do
  [ ! -x "$suite" ] || place "$suite" "$(basename "$suite")" tests
done
place "$(readlink -f "$(command -v mpirun)")" mpirun bin
place "$(readlink -f "$(command -v orted)")" orted bin # a rank without mpirun starts it
cp -r /usr/share/openmpi "$top/share/"

needed() { # the libraries of FILE..., without those that every machine has or the CUDA toolkit brings
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libstdc\+\+|libgcc_s)\.so' |
    grep -vE '/lib(cud|cublas|nccl|nv|cuda)[^/]*\.so' || true
}
take() { # take FILE...: copies their libraries
  local library
  for library in $(needed "$@"); do
    [ -e "$top/lib/$(basename "$library")" ] || strip -o "$top/lib/$(basename "$library")" "$(readlink -f "$library")"
  done
}
take "$top"/real/*
for plugin in "$plugins"/mca_*.so; do
  case $(basename "$plugin") in # networks that one host does not need, and what is not used
    *_ofi.so | *_ucx.so | *_openib.so | *_psm*.so | mca_io_* | mca_sshmem_* | mca_scoll_* | mca_spml_*) ;;
    *)
      cp "$plugin" "$top/$inside/"
      take "$plugin"
      ;;
  esac
done
pmix=$(dirname "$(readlink -f "$(ldconfig -p | awk '/libpmix\.so\.2/ { print $NF; exit }')")")
mkdir -p "$top/${pmix#/usr/}/pmix"
cp "$pmix"/pmix/*.so "$top/${pmix#/usr/}/pmix/"
take "$pmix"/pmix/*.so
tar -C "$top" -cJf "$archive" .
du -h "$archive" | awk '{ print $2 ": " $1 }'
