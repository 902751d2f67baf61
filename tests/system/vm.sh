#!/bin/bash
# Throw-away machines under qemu, computed in software (never KVM): any topology of CPUs, cgroup v2, v1 or both.
# Debian bookworm with python3, numactl, lstopo, podman with crun, Slurm with munge, and systemd where it is asked for.
#
#   vm.sh build DIRECTORY          a kernel, root.img, tensorflow.img (called by setup.sh)
#   vm.sh run [OPTIONS] COMMAND    a machine boots, runs the command (bash, as root, in /job) and is thrown away
#
#   -d DIRECTORY  where they were built (build/environments/vm)
#   -s SMP        CPUs, as qemu's -smp (2): 16,sockets=2,cores=4,threads=2 or 4,maxcpus=8
#   -n NODES      NUMA nodes of consecutive CPUs, as many in each (1)
#   -m MB         memory (2048)
#   -c v2|hybrid|v1  the cgroup hierarchies (v2; hybrid has the controllers in v1)
#   -S            systemd is process 1, with cgroup v2 as it mounts it; without -S a script is (vm/init)
#   -j DIRECTORY  is copied to /job
#   -o DIRECTORY  gets what the command leaves in /out (16 MB)
#   -t            TensorFlow's packages for python3 are in /packages
#   -a ARGUMENTS  further arguments of the kernel, as in nosmt
#   -w SECONDS    the machine is ended then (600)
#
# The console is standard output. The exit status is the command's; 97 if none came back.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
. "$here/disks.sh"
suite=bookworm tensorflow=tensorflow-cpu==2.21.0

build() {
  cd "$1"
  make_tensorflow &
  trap 'kill $! 2>/dev/null || true' EXIT
  make_root
  wait $!
}

make_root() {
  mkdir kernel
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ {print $2; exit}')
  (cd kernel && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg -x ./*.deb . && mv boot/vmlinuz-* ../vmlinuz)
  mmdebstrap --quiet --mode=root --variant=minbase --include="$(tr '\n' , <<'END'
python3-minimal
libpython3-stdlib
kmod
iproute2
procps
numactl
hwloc-nox
podman
crun
slurm-wlm
munge
systemd-sysv
dbus
END
  )" "$suite" root /etc/apt/sources.list.d/debian.sources
  mkdir root/job root/out root/packages
  cp -r kernel/lib/modules root/lib/
  chroot root depmod "${package#linux-image-}"
  cp "$here/vm/init" root/vm-init
  cp "$here/vm/vm-job.service" root/etc/systemd/system/
  make_image root
  rm -r kernel
}

make_tensorflow() { # for Debian's Python
  "${PYTHON:-$here/../../.venv/bin/python}" -m pip install -q --target tensorflow --python-version 3.11 \
    --only-binary=:all: "$tensorflow" 'typer>=0.27,<0.29' psutil py-cpuinfo threadpoolctl
  make_image tensorflow
}

make_image() { # an ext4 file system from a directory, which is removed
  truncate -s "$(($(du -sm "$1" | cut -f1) * 11 / 10 + 128))M" "$1.img"
  mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$1" -F "$1.img"
  rm -r "$1"
}

run() {
  local directory=$here/../../build/environments/vm smp=2 nodes=1 memory=2048 cgroups=v2 init=/vm-init
  local job='' out='' tensorflow=no arguments='' seconds=600 option node cpus
  while getopts d:s:n:m:c:Sj:o:ta:w: option; do
    case $option in
      d) directory=$OPTARG ;;
      s) smp=$OPTARG ;;
      n) nodes=$OPTARG ;;
      m) memory=$OPTARG ;;
      c) cgroups=$OPTARG ;;
      S) init=/lib/systemd/systemd ;;
      j) job=$OPTARG ;;
      o) out=$OPTARG ;;
      t) tensorflow=yes ;;
      a) arguments=$OPTARG ;;
      w) seconds=$OPTARG ;;
      *) return 2 ;;
    esac
  done
  shift $((OPTIND - 1))

  exec 9> "$directory/lock"
  flock 9 # one after the other: two machines of many CPUs take far more than twice the time of one
  put_in "$job" "$@"
  local qemu=()
  disks "$directory/root.img"
  [ $tensorflow = no ] || disk 4 "$directory/tensorflow.img" on
  if [ "$nodes" -gt 1 ]; then
    cpus=${smp%%,*}
    for ((node = 0; node < nodes; node++)); do
      qemu+=(-object "memory-backend-ram,id=memory$node,size=$((memory / nodes))M"
        -numa "node,memdev=memory$node,cpus=$((node * cpus / nodes))-$(((node + 1) * cpus / nodes - 1))")
    done
  fi
  # The model of the CPU is one whose threads the kernel sees and TensorFlow's AVX2 code runs on; with monitor an offline
  # CPU would spin. On a busy host the kernel's calibrations may not end (lpj=, tsc=), and now and then a machine hangs
  # before its first process.
  local attempt second patience=$((90 + ${smp%%,*} / 2))
  for attempt in 1 2 3; do
    timeout "$seconds" qemu-system-x86_64 -accel tcg,thread=multi \
      -cpu max,vendor=GenuineIntel,family=6,model=106,stepping=6,monitor=off -M q35 -m "$memory" -smp "$smp" "${qemu[@]}" \
      -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$directory/vmlinuz" \
      -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on lpj=10000000 tsc=reliable \
root=/dev/nvme0n1 rootfstype=ext4 rw init=$init vm.cgroups=$cgroups systemd.unit=vm-job.service \
systemd.show_status=0 $arguments" 9>&- < /dev/null > >(sed -u 's/\r//g') 2>&1 &
    machine=$!
    for ((second = 0; second < patience; second++)); do
      if head -c 6 "$work/out.tar" | grep -q booted || ! kill -0 $machine 2>/dev/null; then
        break 2
      fi
      sleep 1
    done
    echo "the machine did not boot (attempt $attempt)" >&2
    kill $machine
    wait $machine || true
  done
  wait $machine || true
  take_out "$out"
}

"$@"
