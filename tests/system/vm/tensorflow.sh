# shellcheck shell=bash source-path=SCRIPTDIR
# TensorFlow on many CPUs, with a quota of 2, cgroup v2.
. ./look.sh
export PYTHONPATH=/packages TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=local_device=1,process_util=1
nproc > /out/nproc.txt
mkdir quota
echo '200000 100000' > quota/cpu.max
echo $$ > quota/cgroup.procs
cd /job
python3 tflaunch.pyz run pools.py > /out/pools.json 2> /out/pools.log
