#!/usr/bin/env bash
# The layer test: who may include whom, where vendor headers may stand, and that own headers are included from the
# root. Prints each violation as file:line. Without an argument it checks this tree and then itself, on copies in
# which a violation of each kind is planted.
#
# usage: tests/test_layers.sh [--check ROOT]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

sources() { # the C, CUDA and header files of the tree, relative to it; jobs/*.def are container recipes
  (
    cd "$1"
    if [ -e .git ]; then
      git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.def' | while read -r file; do
        [ ! -e "$file" ] || printf '%s\n' "$file"
      done
    else
      find . -name '.?*' -prune -o \( -path './build*' -o -path ./runs \) -prune -o -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) -printf '%P\n'
    fi
  ) | grep -v '^jobs/.*\.def$' | sort
}

check() { # check ROOT: 0 if no file breaks a rule
  local files
  mapfile -t files < <(sources "$1")
  [ ${#files[@]} -gt 0 ] || { echo "$1: no sources"; return 1; }
  (cd "$1" && awk '
    function layer(path, part) {
      split(path, part, "/")
      if (part[1] == "model") return part[1] "/" part[2]
      return part[1]
    }
    function exists(path, line, found) {
      if (path in known) return known[path]
      found = (getline line < path) >= 0
      close(path)
      return known[path] = found
    }
    function fault(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; faults++ }
    function vendor(header) { # where may it stand? tests may use any
      if (mine == "tests") return
      if (header == "mpi.h" && FILENAME !~ /^model\/(base\/world(_[a-z]+\.c|_parts\.h|\.c)|backend\/comm_cpu\.c)$/)
        fault("mpi.h belongs in model/base/world*.c and model/backend/comm_cpu.c")
      if (header ~ /^(cuda|cudnn|cublas|cu[a-z]+_)[A-Za-z0-9_]*\.h(pp)?$|^nccl|^nvtx|^nvToolsExt|^nvml/ &&
          FILENAME !~ /^model\/.*(_cuda\.[ch]|\/cuda[^\/]*\.[ch]|\.cuh?)$/)
        fault(header " belongs in the cuda files of model/")
      if (header ~ /^(oneapi\/dnnl\/)?dnnl/ && FILENAME !~ /^model\/.*(_cpu|\/cpu[^\/]*)\.c$|^model\/ops\/[a-z_]+_dnnl\.h$/)
        fault(header " belongs in the cpu files of model/")
      if (header ~ /^(hdf5(_hl)?|H5[A-Z][A-Za-z]*)\.h$/ &&
          FILENAME !~ /^(data\/(dataset|shard)[^\/]*|app\/checkpoint[^\/]*)\.c$|^(data|app)\/[a-z_]+_hdf5\.h$/)
        fault(header " belongs in data/dataset*.c, data/shard*.c and app/checkpoint*.c")
      if (header ~ /^(archive|archive_entry|jpeglib|turbojpeg|png)\.h$/ && FILENAME !~ /^data\/.*\.c$/)
        fault(header " belongs in the sources of data/")
      if (header ~ /^(ini|cjson\/cJSON|cJSON|argp|getopt)\.h$/ && mine != "app")
        fault(header " belongs in app/")
      if (header ~ /^Random123\// && FILENAME != "model/base/random.c")
        fault(header " belongs in model/base/random.c")
    }
    BEGIN {
      ops = "model/ops model/base "
      backend = "model/backend " ops
      net = "model/net " backend
      zoo = "model/zoo " net
      may["app"] = " app data " zoo
      may["data"] = " data model/base "
      may["model/zoo"] = " " zoo
      may["model/net"] = " " net
      may["model/backend"] = " " backend
      may["model/ops"] = " " ops
      may["model/base"] = " model/base "
      may["tests"] = " tests app data " zoo
    }
    FNR == 1 {
      mine = layer(FILENAME)
      if (!(mine in may)) fault("a source outside the layers")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      split($0, quoted, "\"")
      path = quoted[2]
      if (path ~ /^\.\.?\// || !exists(path)) fault("\"" path "\" is not a header of this tree, written from its root")
      else if (path ~ /\/world_parts\.h$/) vendor("mpi.h")
      else if (path ~ /_dnnl\.h$/) vendor("dnnl.h")
      else if (path ~ /_hdf5\.h$/) vendor("hdf5.h") # a header that hands a library on counts as the library
      else if (path ~ /(_cuda|\/cuda[^\/]*)\.h$/) vendor("cuda.h")
      if (mine in may && exists(path) && index(may[mine], " " layer(path) " ") == 0) fault(mine " may not include " layer(path))
    }
    /^[ \t]*#[ \t]*include[ \t]*</ {
      split($0, angled, /[<>]/)
      if (layer(angled[2]) in may) fault("<" angled[2] "> is of this tree: write it in quotes")
      else vendor(angled[2])
    }
    /(^|[^_A-Za-z0-9])fopen *\(/ && FILENAME ~ /^model\// { fault("model/ opens no file") }
    END { exit faults > 0 }
  ' "${files[@]}")
}

if [ "${1:-}" = --check ]; then
  check "$2"
  exit
fi

passed=0 failed=0
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
not_ok() { failed=$((failed + 1)); printf 'FAIL  %s\n' "$1"; }

if check "$here"; then ok "this tree keeps its layers"; else not_ok "this tree keeps its layers"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/clean"
(cd "$here" && sources . | while read -r file; do printf '%s\0' "$file"; done | tar --null -T - -cf -) | tar -C "$work/clean" -xf -

planted() { # planted FILE LINE: the copy with LINE added to FILE must be refused at exactly that place
  local copy=$work/copy file=$1 line=$2 found number
  rm -rf "$copy"
  cp -r "$work/clean" "$copy"
  mkdir -p "$(dirname "$copy/$file")"
  printf '%s\n' "$line" >>"$copy/$file"
  number=$(wc -l <"$copy/$file")
  if found=$(check "$copy"); then
    not_ok "planted in $file: $line (not seen)"
  elif ! grep -q "^$file:$number: " <<<"$found"; then
    not_ok "planted in $file: $line (seen elsewhere: $found)"
  else
    ok "planted in $file: $line"
  fi
}
allowed() { # allowed FILE LINE: must not be refused
  local copy=$work/copy file=$1 line=$2 found
  rm -rf "$copy"
  cp -r "$work/clean" "$copy"
  mkdir -p "$(dirname "$copy/$file")"
  printf '%s\n' "$line" >>"$copy/$file"
  if found=$(check "$copy" | grep "^$file:"); then not_ok "allowed in $file: $line (refused: $found)"; else ok "allowed in $file: $line"; fi
}

# each edge that the layers forbid
for pair in model/base:model/ops/op.h model/base:data/dataset.h model/ops:model/backend/backend.h \
  model/ops:model/net/net.h model/backend:model/net/graph.h model/backend:data/dataset.h model/net:model/zoo/zoo.h \
  model/net:data/sampler.h model/zoo:data/dataset.h data:model/net/net.h data:model/ops/op.h data:model/zoo/zoo.h \
  data:model/backend/backend.h; do
  planted "${pair%%:*}/planted.c" "#include \"${pair#*:}\""
done
mkdir -p "$work/clean/app" && touch "$work/clean/app/planted.h"
for folder in model/base model/ops model/net model/zoo data; do
  planted "$folder/planted.h" '#include "app/planted.h"'
done
planted model/net/planted.c '#include "graph.h"'
planted app/planted.c '#include "../data/dataset.h"'
planted app/planted.c '#include "model/net/no_such_header.h"'
planted model/net/planted.c '#include <model/net/graph.h>'
planted model/net/planted.c '#  include "data/dataset.h"'
planted tools/planted.c 'int planted;'
planted model/net/planted.c '#include <mpi.h>'
planted model/backend/comm_cuda.c '#include <mpi.h>'
planted model/net/planted.c '#include "model/base/world_parts.h"'
planted model/base/world.h '#include <mpi.h>'
planted app/planted.c '#include <mpi.h>'
planted model/ops/planted_cpu.c '#include <cuda_runtime.h>'
planted model/net/planted.c '#include <cudnn.h>'
planted model/ops/planted.h '#include <cublasLt.h>'
planted app/planted_cuda.c '#include <nccl.h>'
planted model/ops/planted.c '#include <dnnl.h>'
planted model/ops/op_cpu.h '#include <dnnl.h>'
planted model/ops/op.c '#include "model/ops/product_dnnl.h"'
planted model/ops/planted_cuda.c '#include <oneapi/dnnl/dnnl.h>'
planted data/planted.c '#include <hdf5.h>'
planted model/net/planted.c '#include <hdf5.h>'
planted app/planted.c '#include <H5Fpublic.h>'
mkdir -p "$work/clean/data" && touch "$work/clean/data/planted_hdf5.h" "$work/clean/model/ops/planted_cuda.h"
planted data/planted.c '#include "data/planted_hdf5.h"'
planted model/net/planted.c '#include "model/ops/planted_cuda.h"'
planted app/planted.c '#include <archive.h>'
planted data/planted.c '#include <cjson/cJSON.h>'
planted data/planted.c '#include <Random123/philox.h>'
planted model/base/planted.c 'FILE *planted(void) { return fopen("x", "r"); }'

allowed model/base/world.c '#include <mpi.h>'
allowed model/base/world_planted.c '#include <mpi.h>'
allowed model/ops/planted_cuda.c '#include <cudnn.h>'
allowed model/backend/cuda_planted.c '#include <nccl.h>'
allowed model/backend/planted.cu '#include <cuda_bf16.h>'
allowed model/ops/planted_cpu.c '#include <dnnl.h>'
allowed data/shard_planted.c '#include <hdf5.h>'
allowed data/planted_hdf5.h '#include <hdf5.h>'
allowed data/shard_planted.c '#include "data/planted_hdf5.h"'
allowed app/planted.c '#include "model/zoo/zoo.h"'
allowed model/zoo/planted.c '#include "model/net/graph.h"'
allowed data/planted.c '#include "model/base/world.h"'
allowed tests/planted.c '#include <hdf5.h>'

printf 'layers: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
