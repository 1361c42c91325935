# shellcheck shell=bash
# A real Slurm of several nodes on this host, for tests: one munged, one slurmctld, and for each node a slurmd in its
# own UTS and mount namespace with its own host name, /dev/shm and /etc/hosts. Sourced; needs root and Debian's packages
# slurmctld, slurmd, slurm-client, munge. All state is in one folder, all network on the loopback.
#
#   cluster_reason              prints why no cluster can run here; nothing: it can
#   cluster_up DIR NODES CPUS   starts it and exports SLURM_CONF; nodes are n1, n2, … with CPUS fake GPUs each, where
#                               device files can be made (CLUSTER_GPUS is their number a node)
#   cluster_crash NODE          the node goes as in a power cut: slurmd and every process on it
#   cluster_start NODE          brings it back
#   cluster_down                ends all of it; safe to call at any time

PATH=$PATH:/usr/sbin:/sbin

cluster_reason() {
  local tool
  for tool in munged slurmctld slurmd munge unmunge sbatch srun scontrol sinfo squeue scancel unshare nsenter mknod; do
    command -v "$tool" > /dev/null || { echo "no $tool (Debian: slurmctld slurmd slurm-client munge)"; return; }
  done
  [ "$(id -u)" = 0 ] || { echo "not root"; return; }
  unshare --uts --mount true 2> /dev/null || { echo "no namespaces (unshare is not permitted)"; return; }
  unshare --mount mount -t tmpfs none /mnt 2> /dev/null || echo "mounts are not permitted"
}

# cluster_wait SECONDS COMMAND...: until it succeeds.
cluster_wait() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

cluster_config() {
  local port=$1 i memory gres=""
  memory=$(awk '/MemTotal/ { print int($2 / 1024 / 2 / 1.2) }' /proc/meminfo)
  echo "AutoDetect=off" > "$CLUSTER/gres.conf"
  CLUSTER_GPUS=0
  # Slurm takes only character devices for GPUs; these are /dev/null by another name.
  for ((i = 0; i < CLUSTER_CPUS; i++)); do
    mknod "$CLUSTER/gpu$i" c 1 3 2> /dev/null && CLUSTER_GPUS=$((i + 1))
  done
  if [ $CLUSTER_GPUS = "$CLUSTER_CPUS" ]; then
    gres="Gres=gpu:$CLUSTER_GPUS"
    echo "NodeName=n[1-$CLUSTER_NODES] Name=gpu File=$CLUSTER/gpu[0-$((CLUSTER_GPUS - 1))]" >> "$CLUSTER/gres.conf"
  fi
  printf 'CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n' > "$CLUSTER/cgroup.conf"
  {
    printf '127.0.0.1 localhost %s\n' "$(hostname)"
    for ((i = 1; i <= CLUSTER_NODES; i++)); do printf '127.0.0.1 n%d\n' "$i"; done
  } > "$CLUSTER/hosts"
  # Open MPI leaves the loopback out unless told. Everything else as the host's file has it: Debian's turns off UCX.
  { cat /etc/openmpi/openmpi-mca-params.conf 2> /dev/null; printf '\nbtl_tcp_if_include = lo\noob_tcp_if_include = lo\n'; } \
    > "$CLUSTER/openmpi.conf"
  # cred_expire is also the pause before a requeued job may start again (at least 5 s); mpi/pmix makes folders in TmpFS,
  # so each node has its own.
  cat > "$CLUSTER/slurm.conf" << END
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool/%n
TmpFS=$CLUSTER/tmp/%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/log/slurmctld
SlurmdLogFile=$CLUSTER/log/slurmd-%n
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
MpiDefault=none
KillWait=3
OverTimeLimit=0
MinJobAge=3600
JobRequeue=1
GresTypes=gpu
END
  for ((i = 1; i <= CLUSTER_NODES; i++)); do
    mkdir -p "$CLUSTER/spool/n$i" "$CLUSTER/tmp/n$i"
    # One address with a port for each node: srun inside a job could not be called back on several.
    echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=$CLUSTER_CPUS RealMemory=$memory $gres State=UNKNOWN"
  done >> "$CLUSTER/slurm.conf"
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP" >> "$CLUSTER/slurm.conf"
}

cluster_munge_works() { munge -S "$CLUSTER/munge/socket" -n 2> /dev/null | unmunge -S "$CLUSTER/munge/socket" > /dev/null 2>&1; }
cluster_answers() { timeout 5 scontrol ping 2> /dev/null | grep -q 'is UP'; }
cluster_all_idle() { [ "$(timeout 5 sinfo -h -N -o %T 2> /dev/null | grep -c '^idle$')" = "$CLUSTER_NODES" ]; }

cluster_start() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --uts --mount bash -c '
    set -e
    hostname "$1"
    mount -t tmpfs -o mode=1777 none /dev/shm
    mount --bind "$2/hosts" /etc/hosts
    [ ! -e /etc/openmpi/openmpi-mca-params.conf ] || mount --bind "$2/openmpi.conf" /etc/openmpi/openmpi-mca-params.conf
    readlink /proc/self/ns/mnt > "$2/namespace-$1"
    exec slurmd -f "$2/slurm.conf" -N "$1"' node "$1" "$CLUSTER" < /dev/null >> "$CLUSTER/log/start" 2>&1
}

# cluster_attempt PORT: all daemons up and all nodes idle?
cluster_attempt() {
  local i
  cluster_config "$1"
  munged --socket="$CLUSTER/munge/socket" --key-file="$CLUSTER/munge/key" --pid-file="$CLUSTER/munged.pid" \
    --log-file="$CLUSTER/munge/log" --seed-file="$CLUSTER/munge/seed" < /dev/null >> "$CLUSTER/log/start" 2>&1 || return 1
  cluster_wait 10 cluster_munge_works || return 1
  slurmctld -f "$SLURM_CONF" < /dev/null >> "$CLUSTER/log/start" 2>&1 || return 1
  cluster_wait 30 cluster_answers || return 1
  for ((i = 1; i <= CLUSTER_NODES; i++)); do cluster_start "n$i" || return 1; done
  cluster_wait 60 cluster_all_idle
}

cluster_up() {
  local try
  CLUSTER=$1 CLUSTER_NODES=$2 CLUSTER_CPUS=$3
  export SLURM_CONF=$CLUSTER/slurm.conf
  for try in 1 2 3; do # another port each time: some program may have that one
    mkdir -p "$CLUSTER"/{state,log,munge,spool,tmp}
    chmod 711 "$CLUSTER" "$CLUSTER/munge"
    (umask 077 && head -c 128 /dev/urandom > "$CLUSTER/munge/key")
    cluster_attempt $((20000 + RANDOM % 10000)) && return
    echo "no cluster at try $try:" >&2
    tail -n 8 "$CLUSTER"/log/* "$CLUSTER/munge/log" >&2
    cluster_down
  done
  return 1
}

# cluster_processes NODE: what runs on it. A namespace's number may be another's by now, so it must be of this cluster too.
cluster_processes() {
  local namespace process
  namespace=$(cat "$CLUSTER/namespace-$1" 2> /dev/null) || return 0
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/ns/mnt" 2> /dev/null)" = "$namespace" ] || continue
    grep -qzxF "SLURM_CONF=$SLURM_CONF" "$process/environ" 2> /dev/null && echo "${process#/proc/}"
  done
  return 0
}

cluster_crash() {
  local list
  mapfile -t list < <(cluster_processes "$1")
  [ ${#list[@]} = 0 ] || kill -KILL "${list[@]}" 2> /dev/null || true
}

cluster_no_jobs() {
  local jobs
  mapfile -t jobs < <(timeout 5 squeue -h -o %A 2> /dev/null | sort -u)
  [ ${#jobs[@]} -gt 0 ] || return 0
  timeout 10 scancel "${jobs[@]}" 2> /dev/null
  sleep 0.3
  return 1
}

# cluster_gone PID: it has ended, if perhaps not been waited for.
cluster_gone() { ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null; }

# cluster_end NAME: the daemon of the pid file, if it is ours.
cluster_end() {
  local pid
  pid=$(tr -dc 0-9 2> /dev/null < "$CLUSTER/$1.pid") || return 0
  [ -n "$pid" ] && tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -q "$CLUSTER" || return 0
  kill -TERM "$pid" 2> /dev/null
  cluster_wait 5 cluster_gone "$pid" || kill -KILL "$pid" 2> /dev/null
  return 0
}

cluster_down() {
  local i
  [ -n "${CLUSTER:-}" ] && [ -d "$CLUSTER" ] || return 0
  if cluster_answers; then cluster_wait 10 cluster_no_jobs || true; fi
  for ((i = 1; i <= CLUSTER_NODES; i++)); do cluster_crash "n$i"; done
  cluster_end slurmctld
  cluster_end munged
  rm -rf "$CLUSTER"
}
