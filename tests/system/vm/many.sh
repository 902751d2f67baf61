# shellcheck shell=bash source-path=SCRIPTDIR
# 128 CPUs, cgroup v2.
. ./look.sh
machine
look explain whole ''
mkdir outer
echo '200000 100000' > outer/cpu.max
echo +cpu > outer/cgroup.subtree_control
mkdir outer/inner
echo '6400000 100000' > outer/inner/cpu.max
look run quota outer/inner
python3 /job/tflaunch.pyz explain > /out/explain.txt
