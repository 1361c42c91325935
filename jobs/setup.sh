# shellcheck shell=bash
# What the scripts of this tree share; source it from the top of the tree. It finds or installs the Debian packages,
# builds, and lets Open MPI run as root (containers). Nothing here runs by itself.

say() { printf '==> %s\n' "$*"; }
die() { # die CODE TEXT
  printf 'error: %s\n' "$2" >&2
  exit "$1"
}

# cuda_toolkit: whether nvcc is here, so that CMake may build the CUDA backend.
cuda_toolkit() { command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; }

# packages_of GROUP: the Debian packages that building, testing or linting needs; nvcc needs a C++ compiler.
packages_of() {
  ! [ "$1" = build ] || ! cuda_toolkit || echo -n 'g++ '
  case $1 in
    build) echo cmake ninja-build gcc libc6-dev libopenmpi-dev openmpi-bin libhdf5-dev libdnnl-dev libinih-dev \
      libcjson-dev librandom123-dev libxxhash-dev libarchive-dev libjpeg62-turbo-dev libpng-dev ;;
    test)
      echo -n libcmocka-dev libstb-dev python3 python3-h5py python3-numpy python3-yaml python3-jsonschema python3-venv xz-utils strace \
        procps tmux gnuplot-nox locales zsh man-db
      # they run as users of their own: not where only root may enter / (some chroots); their suite is skipped there
      [ $((8#$(stat -c %a /) & 1)) = 0 ] || echo -n ' slurmctld slurmd slurm-client munge'
      echo
      ;;
    lint) echo clang-format clang-tidy cppcheck shellcheck ;;
    fuzz) echo clang libclang-rt-14-dev ;;
    *) die 2 "no package group '$1'" ;;
  esac
}

# need_packages GROUP...: as packages_of names them. Installs what is missing as root or through sudo; else prints the
# exact list and ends with 2. Silent and quick when all is there. CONVOY_PROVIDED gets the names under which suites look for
# what is here then: programs and Python modules.
need_packages() {
  local group package list missing=() wanted=() as=()
  for group in "$@"; do
    read -ra list < <(packages_of "$group")
    wanted+=("${list[@]}")
  done
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "Not a Debian system: packages are not checked; CMake names a library that it does not find."
    return 0
  fi
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    case $package in
      openmpi-bin) CONVOY_PROVIDED+=" mpirun" ;;
      libopenmpi-dev) CONVOY_PROVIDED+=" mpicc" ;;
      gnuplot-nox) CONVOY_PROVIDED+=" gnuplot" ;;
      man-db) CONVOY_PROVIDED+=" man" ;;
      slurm-client) CONVOY_PROVIDED+=" srun" ;;
      munge) CONVOY_PROVIDED+=" munged" ;;
      *) CONVOY_PROVIDED+=" ${package#python3-}" ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as=(sudo -n)
    else
      packages_refuse "they cannot be installed without root" "${missing[@]}"
    fi
  fi
  say "Installing ${#missing[@]} missing Debian packages: ${missing[*]}"
  local apt=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local log
  log=$(mktemp)
  if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    packages_refuse "apt-get could not install them (its last lines are above)" "${missing[@]}"
  fi
  rm -f "$log"
}

# need_readers FOLDER: what only tests read results with, in FOLDER and nowhere else on the system: a virtual environment
# and Prometheus (its package, once installed, would run a service). What is fetched joins CONVOY_PROVIDED; what cannot be is
# said, and the suites leave out what needs it.
need_readers() {
  # numpy and h5py are Debian's, and so are torch and torchvision where they are installed: numpy must not change
  local python_packages=(tensorboard pillow onnx onnxruntime safetensors 'numpy<2') log
  mkdir -p "$1"
  log=$(mktemp)
  if [ "$(cat "$1/python/complete" 2>/dev/null)" != "${python_packages[*]}" ]; then
    say "Fetching Python packages that tests use: ${python_packages[*]}"
    if { /usr/bin/python3 -m venv --system-site-packages "$1/python" &&
      "$1/python/bin/pip" install -q "${python_packages[@]}"; } >"$log" 2>&1 </dev/null; then
      echo "${python_packages[*]}" >"$1/python/complete"
    else
      say "They could not be fetched: $(tail -n 1 "$log")"
    fi
  fi
  [ "$(cat "$1/python/complete" 2>/dev/null)" != "${python_packages[*]}" ] || CONVOY_PROVIDED+=" ${python_packages[*]/pillow/PIL}"
  "$1/python/bin/python" -c 'import torchvision' 2>/dev/null ||
    say "No torchvision: exported weights are not loaded into it (Debian: python3-torchvision)"
  command -v chromium >/dev/null || say "No Chromium: no browser looks at reports (Debian: chromium)"
  if [ ! -x "$1/prometheus/usr/bin/promtool" ] && command -v apt-get >/dev/null; then
    say "Fetching Prometheus, which tests use"
    (cd "$1" && apt-get -q download prometheus && dpkg-deb -x prometheus_*.deb prometheus && rm prometheus_*.deb) \
      >"$log" 2>&1 </dev/null || say "It could not be fetched: $(tail -n 1 "$log")"
  fi
  [ ! -x "$1/prometheus/usr/bin/promtool" ] || CONVOY_PROVIDED+=" promtool prometheus"
  rm -f "$log"
}

packages_refuse() { # packages_refuse WHY PACKAGE...
  local why=$1
  shift
  {
    printf 'error: %d Debian packages are missing and %s; install them and start again:\n' $# "$why"
    printf '  apt-get install --no-install-recommends %s\n' "$*"
  } >&2
  exit 2
}

# build_convoy FOLDER TARGET [CMAKE OPTION...]: configures and builds. Options are kept in FOLDER between calls.
build_convoy() {
  local folder=$1 target=$2
  shift 2
  local log
  log=$(mktemp)
  say "Building $target in $folder/"
  cmake -G Ninja -S . -B "$folder" "$@" >"$log" 2>&1 </dev/null ||
    { tail -n 20 "$log" >&2; rm -f "$log"; die 2 "the build could not be configured (above)"; }
  grep '^-- Convoy ' "$log" || true
  rm -f "$log"
  cmake --build "$folder" --target "$target" </dev/null || die 1 "the build failed (above)"
}

# Open MPI refuses root unless told; more ranks than cores are allowed.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1
