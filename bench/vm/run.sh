#!/bin/bash
# threads.py in a virtual machine that has 64 CPUs and cgroup v2: the threads it counts are real.
# Speed means nothing there: qemu computes the 64 CPUs with those of the host, without KVM.
#
#   apt-get install -y --no-install-recommends qemu-system-x86 mmdebstrap e2fsprogs
#   bench/vm/run.sh [DIRECTORY]    as root, on Debian; the image (2.4 GB) is made in DIRECTORY once and stays there
set -euo pipefail
repository=$(realpath "$(dirname "$0")/../..")
directory=$(realpath -m "${1:-$HOME/.cache/tflaunch-bench-vm}")
python=${PYTHON:-$repository/.venv/bin/python}
cpus=${CPUS:-64} suite=bookworm suite_python=3.11

make_image() { # a kernel, and a root file system with Debian's Python, TensorFlow and an init that runs one job
  mkdir -p "$directory"
  cd "$directory"
  rm -rf kernel root
  mkdir kernel
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/{print $2; exit}')
  (cd kernel && apt-get -qq download "$package" && dpkg -x ./*.deb . && cp boot/vmlinuz-* ../vmlinuz)
  mmdebstrap --quiet --mode=root --variant=minbase --include=python3 \
    "$suite" root /etc/apt/sources.list.d/debian.sources
  "$python" -m pip install -q --target root/opt/packages --python-version "$suite_python" \
    --only-binary=:all: tensorflow-cpu==2.21.0 typer==0.27.3
  mkdir root/job
  cat > root/run-job <<'INIT'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/job:/opt/packages
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs tmp /tmp; mount -t tmpfs job /job
mount -t cgroup2 cgroup2 /sys/fs/cgroup; echo +cpu > /sys/fs/cgroup/cgroup.subtree_control
tar -xf /dev/nvme0n2 -C /job
python3 /job/bench/vm/threads.py < /dev/null 2>&1
echo "exit status $?"
echo o > /proc/sysrq-trigger; sleep 60
INIT
  chmod +x root/run-job
  truncate -s "$(($(du -sm root | cut -f1) * 12 / 10 + 64))M" root.part
  mke2fs -q -t ext4 -O ^has_journal -m 0 -d root -F root.part
  rm -rf kernel root
  mv root.part root.img
}

[ -e "$directory/root.img" ] || make_image
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
git -C "$repository" archive HEAD | tar -x -C "$work/source" # the build makes its library in the source
"$python" -m pip install -q --no-deps --target "$work/job" "$work/source"
cp -r "$work/source/bench" "$work/job"
tar -cf "$work/job.tar" -C "$work/job" .
truncate -s %1M "$work/job.tar"
# The model of the CPU is one that TensorFlow's AVX2 code runs on.
timeout "${SECONDS_AT_MOST:-3600}" qemu-system-x86_64 \
  -accel tcg,thread=multi -cpu max,vendor=GenuineIntel,family=6,model=106,stepping=6 -M q35 -m 6144 -smp "$cpus" \
  -device nvme,id=disks,serial=bench \
  -drive "file=$directory/root.img,if=none,id=root,format=raw,snapshot=on" -device nvme-ns,drive=root,bus=disks,nsid=1 \
  -drive "file=$work/job.tar,if=none,id=job,format=raw,snapshot=on" -device nvme-ns,drive=job,bus=disks,nsid=2 \
  -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$directory/vmlinuz" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on root=/dev/nvme0n1 rw init=/run-job" \
  < /dev/null 2>&1 | sed -u 's/\r//g' | tee "$work/output"
grep -q '^exit status 0$' "$work/output"
