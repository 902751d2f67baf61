#!/bin/bash
# threads.py in a virtual machine that has 64 CPUs and cgroup v2 (tests/system/vm.sh): the threads it counts are real.
# Speed means nothing there: qemu computes the 64 CPUs with those of the host, without KVM.
#
#   bench/vm/run.sh    as root, on Debian; CPUS=8 bench/vm/run.sh for fewer
set -euo pipefail
repository=$(realpath "$(dirname "$0")/../..")
python=${PYTHON:-$repository/.venv/bin/python}

"$repository/tests/system/setup.sh" vm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
git -C "$repository" archive HEAD | tar -x -C "$work/source" # the build makes its library in the source
"$python" -m pip install -q --no-deps --target "$work/job" "$work/source"
cp -r "$work/source/bench" "$work/job"
"$repository/tests/system/vm.sh" run -s "${CPUS:-64}" -m 6144 -t -w "${SECONDS_AT_MOST:-3600}" -j "$work/job" \
  'PYTHONPATH=/job:/packages python3 bench/vm/threads.py'
