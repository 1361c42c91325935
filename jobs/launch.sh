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
      launched=("$@")
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
  if [ "$code" = 0 ] && [ ${#launched[@]} -gt 0 ]; then launch_prove; fi
}

# option_of NAME WORD...: the value of --NAME among the words, else of its line in --config's file.
option_of() {
  local name=$1 file value
  shift
  value=$(printf '%s\n' "$@" | sed -n -e "/^--$name\$/{n;p}" -e "s/^--$name=//p" | tail -n 1)
  if [ -z "$value" ] && [ "$name" != config ]; then
    file=$(option_of config "$@")
    [ -z "$file" ] || value=$(sed -n "s/^ *$name *[=:] *//p" "$file" | tail -n 1)
  fi
  printf '%s\n' "$value"
}

# launch_prove: mpirun may end with 0 when it has lost a node (4.1 takes the end of its daemons for the ranks'). The run's
# own record says whether it is done; if not, $code is that of a lost rank.
launch_prove() {
  local out
  out=$(option_of out "${launched[@]}")
  case " ${launched[*]} " in *" --check "*) return ;; esac
  if [ -f "$out/run.json" ] && ! grep -Eq '"status":[[:space:]]*"(complete|stopped)"' "$out/run.json"; then
    say "mpirun ended with 0, but $out/run.json says that the run has not ended"
    code=5
  fi
}

# launch_stop SIGNAL: what a trap calls. USR1 comes before the time limit and goes on to the ranks, which save and end
# with 75. TERM is scancel or preemption: Slurm sends it to all processes itself.
limit="" cancelled="" interrupted="" launcher="" launched=()
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
