# shellcheck shell=bash
# What the suites that run jobs in the mini cluster share. Sourced with the program as $1; brings up two nodes of two CPUs
# or ends with 77 where none can run, and sets CONVOY, WORK, data, gpus. Ranks compute on the CPU; the GPUs, null devices,
# are there to be asked for.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tests/program/lib.sh
. tests/program/lib.sh
# shellcheck source=tests/slurm/cluster.sh
. tests/slurm/cluster.sh
plain "the job scripts" || exit 77
for tool in slurmctld slurmd srun munged; do program $tool || exit 77; done
reason=$(cluster_reason)
[ -z "$reason" ] || { leave_out "all jobs: no Slurm can be started here: $reason"; exit 77; }
# With SLURM_* or OMPI_* variables of an outer job the inner ones would be misled.
for variable in $(compgen -e | grep -E '^(SLURM|SBATCH|SRUN|PMI|OMPI_COMM|OMPI_UNIVERSE|CONVOY_LAUNCHER)'); do unset "$variable"; done
CONVOY=$(readlink -f "$CONVOY")
export CONVOY OMP_NUM_THREADS=1
clean_up() { cluster_down; }
chmod 755 "$WORK"
cluster_up "$WORK/slurm" 2 2 || fail "the cluster did not start"
gpus=() one=(--ntasks-per-node=1) # one: for a rank a node, so that two jobs fit
if [ "$CLUSTER_GPUS" != 0 ]; then
  gpus=(--gpus-per-node="$CLUSTER_GPUS")
  one+=(--gpus-per-node=1)
fi
data=$WORK/data
set_of "$data" 256 2000 # batch 64: 4 steps an epoch
cat > "$WORK/base.conf" << END
backend = cpu
threads = 1
data = $data
batch = 64
log-every = 1
deterministic = on
augment = flip,crop
END

place=() # words before the options
# submit NAME SCRIPT SBATCH_OPTION... -- OPTION...: its id in $job, its output in $WORK/NAME.txt. $conf names the config.
submit() {
  local name=$1 script=$2 words=()
  shift 2
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  job=$(sbatch --parsable --output="$WORK/$name.txt" --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 "${gpus[@]}" \
    --time=10 "${words[@]}" "jobs/$script" "${place[@]}" --config "$WORK/${conf:-base}.conf" "$@") || fail "$name: sbatch"
}

# field JOB NAME: of scontrol's description, e.g. JobState.
field() { scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
ended() { case $(field "$1" JobState) in PENDING | RUNNING | COMPLETING | REQUEUED | "") return 1 ;; esac }
# ends NAME STATE EXITCODE: waits for $job. EXITCODE is a pattern.
ends() {
  cluster_wait 150 ended "$job" || fail "$1: does not end: $(field "$job" JobState)" "$WORK/$1.txt"
  [[ "$(field "$job" JobState) $(field "$job" ExitCode)" = $2\ $3 ]] ||
    fail "$1: $(field "$job" JobState) $(field "$job" ExitCode), expected $2 $3" "$WORK/$1.txt"
}
requeued() { [ "$(field "$1" Restarts)" -gt 0 ]; }
has_rows() { [ -f "$1/loss.csv" ] && [ "$(wc -l < "$1/loss.csv")" -gt "$2" ]; }
same_log() { diff <(no_times "$1/loss.csv") <(no_times "$2/loss.csv") > "$WORK/diff.txt" || fail "$3: loss.csv differs" "$WORK/diff.txt"; }
