#!/bin/bash
# Slurm on this machine alone: one node, one partition, as root, with systemd or without.
#
#   tests/system/slurm.sh build DIRECTORY   nothing: its packages are all that it needs (called by setup.sh)
#   tests/system/slurm.sh run COMMAND...    start the daemons, run COMMAND with SLURM_CONF set, stop the daemons
#
# TASK_PLUGIN=task/none gives a Slurm that binds nothing. The exit status is that of COMMAND.
set -euo pipefail

build() { :; }

configure() {
  local ports
  ports=$(python3 -c 'import socket as s; a, b = s.create_server(("", 0)), s.create_server(("", 0))
print(a.getsockname()[1], b.getsockname()[1])')
  cat > "$directory/slurm.conf" <<EOF
ClusterName=tflaunch
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
SlurmUser=root
AuthInfo=socket=$directory/munge.socket
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=${TASK_PLUGIN:-task/affinity,task/cgroup}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
$(slurmd -C | sed -n '1s/ RealMemory.*//p') NodeAddr=127.0.0.1
PartitionName=all Nodes=ALL Default=YES
EOF
  local version=v1
  [ -e /sys/fs/cgroup/cgroup.controllers ] && version=v2
  printf '%s\n' "CgroupPlugin=cgroup/$version" CgroupMountpoint=/sys/fs/cgroup ConstrainCores=yes > "$directory/cgroup.conf"
  if [ $version = v2 ] && [ ! -d /run/systemd/system ]; then  # nobody to ask, over D-Bus, for a group of its own
    echo IgnoreSystemd=yes >> "$directory/cgroup.conf"
    mkdir -p /sys/fs/cgroup/system.slice
    echo +cpu +cpuset +memory +pids > /sys/fs/cgroup/system.slice/cgroup.subtree_control
  fi
}

start() {
  mkdir "$directory/state" "$directory/spool"
  head -c 1024 /dev/urandom > "$directory/munge.key"
  chmod 600 "$directory/munge.key"
  munged --socket "$directory/munge.socket" --key-file "$directory/munge.key" --pid-file "$directory/munged.pid" \
    --log-file "$directory/munged.log" --seed-file "$directory/munged.seed" 8>&-
  slurmctld 8>&-
  slurmd 8>&-
  local deadline=$((SECONDS + 100))
  until [ "$(sinfo --noheader --format %T 2>/dev/null)" = idle ]; do
    [ $SECONDS -lt $deadline ]
    sleep 0.1
  done
  started=yes
}

stop() {
  local daemon pid
  [ -n "$started" ] || tail -n 20 "$directory"/*.log >&2 || true
  local deadline=$((SECONDS + 30))
  if scancel --user root --signal KILL --full 2>/dev/null; then
    while [ -n "$(squeue --noheader 2>/dev/null)" ] && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
  fi
  for daemon in slurmd slurmctld munged; do
    pid=$(cat "$directory/$daemon.pid" 2>/dev/null) || continue
    kill "$pid" || continue
    timeout 30 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" || true
  done
  find /sys/fs/cgroup/*/"slurm_$(hostname -s)" "/sys/fs/cgroup/system.slice/$(hostname -s)_slurmstepd.scope" \
    -depth -type d -exec rmdir {} + 2>/dev/null || true
  rm -rf "$directory"
}

run() {
  exec 8> /run/tflaunch-slurm.lock
  flock 8  # a second one on this machine would use the same cgroups
  started=
  directory=$(mktemp -d)
  chmod 755 "$directory"  # munge's clients look for its socket as any user
  export SLURM_CONF=$directory/slurm.conf
  trap stop EXIT
  trap 'exit 143' TERM INT
  configure
  start
  "$@" 8>&-
}

PATH=$PATH:/usr/sbin
"$@"
