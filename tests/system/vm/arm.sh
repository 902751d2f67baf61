# shellcheck shell=bash source-path=SCRIPTDIR
# big.LITTLE, cgroup v2.
. ./look.sh
cd /sys/devices/system/cpu
grep -H . cpu[0-7]/cpu_capacity > /out/capacity.txt
lscpu --json --extended=cpu,core,cluster > /out/lscpu.json
cd /sys/fs/cgroup
look run whole ''
look run bound '' --cpus 2 --bind cores
mkdir small
echo 2-5 > small/cpuset.cpus
look run mixed small
mkdir quota
echo '150000 100000' > quota/cpu.max
look explain quota quota --view off
