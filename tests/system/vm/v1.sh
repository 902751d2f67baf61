# shellcheck shell=bash source-path=SCRIPTDIR
# cgroup v1: v1.sh CPUS OFFLINE has these CPUs in a cpuset, and then takes one CPU offline.
. ./look.sh

# group NAME QUOTA PERIOD, in microseconds
group() {
  mkdir "cpu/$1"
  echo "$3" > "cpu/$1/cpu.cfs_period_us"
  echo "$2" > "cpu/$1/cpu.cfs_quota_us"
}
mkdir cpuset/own
echo 0 > cpuset/own/cpuset.mems
echo "$1" > cpuset/own/cpuset.cpus
[ $# = 1 ] || echo 0 > "/sys/devices/system/cpu/cpu$2/online"
machine
look explain whole ''
look explain cpuset cpuset/own
group low 75000 50000
mkdir cpu/low/high # one of its own above its parent's is refused by v1
look run tighter-parent cpu/low/high
group wide -1 100000
group wide/narrow 50000 100000
look explain tighter-child cpu/wide/narrow
group three 300000 100000
look explain quota-above-cpuset 'cpu/three cpuset/own'
