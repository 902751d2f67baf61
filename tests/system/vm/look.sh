# shellcheck shell=bash source-path=SCRIPTDIR
# For the scripts beside it, which run in machines of vm.sh: what tflaunch says and what is true, as files in /out.
set -euo pipefail
cd /sys/fs/cgroup

# The machine, as others see it.
machine() {
  lscpu --json --extended=cpu,core,socket,node,online > /out/lscpu.json
  lstopo-no-graphics --only core > /out/cores.txt
  lstopo-no-graphics --only package > /out/packages.txt
  numactl --hardware > /out/numactl.txt
}

# look NAME "GROUP..." [OPTION...]: a process in these control groups, and tflaunch with these options in it.
look() {
  local name=$1 groups=$2 group
  shift 2
  (
    for group in $groups; do
      echo $BASHPID > "$group/cgroup.procs"
    done
    cd /job
    exec python3 look.py "$@"
  ) > "/out/$name.json"
}
