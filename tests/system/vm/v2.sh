# shellcheck shell=bash source-path=SCRIPTDIR
# 2 sockets of 4 cores with 2 threads each, 2 NUMA nodes, cgroup v2.
. ./look.sh
machine
look explain whole ''
look run bound '' --cpus 3 --bind cores
look run bound-siblings '' --cpus 6 --bind cores

# group NAME CPU.MAX [CPUSET]
group() {
  [ "$(dirname "$1")" = . ] || echo +cpu > "$(dirname "$1")/cgroup.subtree_control"
  mkdir "$1"
  echo "$2" > "$1/cpu.max"
  [ $# = 2 ] || echo "$3" > "$1/cpuset.cpus"
}
group low '150000 100000'
group low/high '300000 100000'
look explain tighter-parent low/high
group wide '300000 100000'
group wide/narrow '5000 10000'
look run tighter-child wide/narrow
group both '250000 100000' 4-11
look run quota-and-cpuset both
look run quota-and-cpuset-bound both --bind cores
group above '600000 100000' 0-3
look explain quota-above-cpuset above

group outer '150000 100000'
group outer/own '200000 100000'
# namespace NAME COMMAND: a look from a cgroup namespace, whose root is outer/own, after this command in it
namespace() {
  (
    echo $BASHPID > outer/own/cgroup.procs
    cd /job
    unshare --cgroup --mount bash -ec "$2; python3 look.py explain" > "/out/$1.json"
  )
}
namespace namespace 'umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup'
namespace namespace-of-the-host :

cd /job
podman run --rm --network none --cpus 2.5 --cpuset-cpus 8-13 --volume /job:/job --workdir /job --rootfs /:O \
  python3 look.py run > /out/podman.json
