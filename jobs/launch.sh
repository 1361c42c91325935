# shellcheck shell=bash
# What the sbatch scripts share. Slurm runs a copy of a script, so they find the tree by the folder in which sbatch was
# called; a run's options are the script's arguments.
#
# environment: CONVOY           the program (default build/app/convoy)
#              CONVOY_LAUNCHER  srun (default) or mpirun

say() { printf '==> %s\n' "$*"; }
refuse() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

[ -n "${SLURM_JOB_ID:-}" ] || refuse "not in a Slurm job; start it with: sbatch jobs/NAME.sbatch --config FILE --data DIR --out DIR"
CONVOY=${CONVOY:-build/app/convoy}
CONVOY_LAUNCHER=${CONVOY_LAUNCHER:-srun}

# srun does not take this from sbatch by itself.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Slurm's PMIx by default takes a tree for barriers, and on fewer nodes than TreeWidth (50) that tree waits only for the
# ranks of its own node: MPI starts on one node while another is not ready, and a rank may crash or hang. Its ring waits.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}

# launch_step WORD...: ranks by srun in the background; the words are srun's options and the program. One rank that
# fails ends all.
launch_step() {
  srun --mpi=pmix --kill-on-bad-exit=1 --input=none "$@" &
  launcher=$!
}

# launch RANKS NODES WORD...: the program with its arguments, in the background, by the launcher chosen.
launch() {
  local ranks=$1 nodes=$2
  shift 2
  case $CONVOY_LAUNCHER in
    srun) launch_step --nodes="$nodes" --ntasks="$ranks" "$@" ;;
    # Open MPI would tie each rank to one core.
    mpirun)
      mpirun -n "$ranks" --bind-to none "$@" < /dev/null &
      launcher=$!
      ;;
    *) refuse "CONVOY_LAUNCHER is '$CONVOY_LAUNCHER'; expected srun or mpirun" ;;
  esac
}

# launch_wait: waits until the launcher has ended; its exit code in $code. A trap ends `wait` early, so it is asked again
# until no signal came between.
launch_wait() {
  while :; do
    interrupted=
    wait "$launcher" && code=0 || code=$?
    [ -n "$interrupted" ] || break
  done
}

# launch_stop SIGNAL: what a trap calls. USR1 comes before the time limit and goes on to the ranks, which save and end
# with 75. TERM is scancel or preemption: Slurm sends it to all processes itself.
limit="" cancelled="" interrupted="" launcher=""
launch_stop() {
  interrupted=1
  if [ "$1" = TERM ]; then
    cancelled=1
  else
    limit=1
    say "The time limit is near: asking for a checkpoint"
    [ -z "$launcher" ] || kill -USR1 "$launcher" 2> /dev/null || true
  fi
}

# launch_end: ends the job with $code, after putting it back into the queue if it stopped for the time limit with a good
# checkpoint. A job that was cancelled stays so: requeueing would undo scancel.
launch_end() {
  if [ "$code" = 75 ] && [ -n "$limit" ] && [ -z "$cancelled" ]; then
    say "Stopped with a checkpoint: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || say "It could not be requeued; submit it again to go on"
  fi
  exit "$code"
}
