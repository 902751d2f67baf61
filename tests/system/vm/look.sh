# shellcheck shell=bash source-path=SCRIPTDIR
# For the scripts beside it, which run in machines of vm.sh: what tflaunch says and what is true, as files in /out.
set -euo pipefail
cd /sys/fs/cgroup

# The machine, as others see it.
machine() {
  lscpu --parse=cpu,core,socket,node > /out/lscpu.txt # the online ones
  lstopo-no-graphics --only core > /out/cores.txt
  lstopo-no-graphics --only package > /out/packages.txt
  numactl --hardware > /out/numactl.txt
}

# look explain|run NAME "GROUP..." [OPTION...]: tflaunch with these options in these control groups.
look() {
  local what=$1 name=$2 groups=$3 group
  shift 3
  (
    for group in $groups; do
      echo $BASHPID > "$group/cgroup.procs"
    done
    cd /job
    exec python3 look.py "$what" "$@"
  ) > "/out/$name.json"
}
