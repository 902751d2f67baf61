#!/bin/bash
# Throw-away ARM machines under qemu, computed in software: four small cores and four large ones, as their cpu_capacity
# says, in a cluster each; Debian bookworm with python3, cgroup v2.
#
#   vm-arm.sh build DIRECTORY          a kernel, root.img (called by setup.sh)
#   vm-arm.sh run [OPTIONS] COMMAND    a machine boots, runs the command (bash, as root, in /job) and is thrown away
#
#   -d DIRECTORY  where they were built (build/environments/vm-arm)
#   -j DIRECTORY  is copied to /job
#   -o DIRECTORY  gets what the command leaves in /out (16 MB)
#   -w SECONDS    the machine is ended then (600)
#
# The console is standard output. The exit status is the command's; 97 if none came back.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
. "$here/disks.sh"
suite=bookworm

build() {
  cd "$1"
  # Lists of packages of another architecture, beside the host's own.
  mkdir -p apt/lists/partial apt/cache/archives/partial apt/sources kernel
  cp /etc/apt/sources.list.d/debian.sources apt/sources
  : > apt/status
  local apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$PWD/apt/sources" -o "Dir::State::Lists=$PWD/apt/lists"
    -o "Dir::State::status=$PWD/apt/status" -o "Dir::Cache=$PWD/apt/cache")
  apt-get "${apt[@]}" update
  package=$(apt-cache "${apt[@]}" depends linux-image-cloud-arm64 | awk '/Depends:/ {print $2; exit}')
  (cd kernel && apt-get "${apt[@]}" download "$package" && dpkg -x ./*.deb . && mv boot/vmlinuz-* ../vmlinuz)
  # Unpacked only: nothing of another architecture can run here to configure it.
  mmdebstrap --quiet --mode=root --variant=extract --arch=arm64 --format=directory \
    --include=python3.11-minimal,libpython3.11-stdlib,bash,dash,coreutils,mount,util-linux,procps,grep,tar,libc-bin,kmod \
    "$suite" root /etc/apt/sources.list.d/debian.sources
  ln -s python3.11 root/usr/bin/python3
  mkdir -p root/job root/out
  cp "$here/vm/init" root/vm-init
  truncate -s "$(($(du -sm root | cut -f1) * 11 / 10 + 64))M" root.img
  mke2fs -q -t ext4 -O ^has_journal -m 0 -d root -F root.img
  rm -r apt kernel root
}

run() {
  local directory=$here/../../build/environments/vm-arm job='' out='' seconds=600 option cpu
  while getopts d:j:o:w: option; do
    case $option in
      d) directory=$OPTARG ;;
      j) job=$OPTARG ;;
      o) out=$OPTARG ;;
      w) seconds=$OPTARG ;;
      *) return 2 ;;
    esac
  done
  shift $((OPTIND - 1))

  put_in "$job" "$@"
  # qemu describes the machine; how fast each core is gets added to that.
  local qemu=(-cpu cortex-a72 -m 1024 -smp "8,clusters=2,cores=4,threads=1" -nodefaults -display none)
  qemu-system-aarch64 -M virt,gic-version=3,dumpdtb="$work/machine.dtb" "${qemu[@]}" 2>/dev/null
  for cpu in 0 1 2 3; do
    fdtput -t i "$work/machine.dtb" "/cpus/cpu@$cpu" capacity-dmips-mhz 446
    fdtput -t i "$work/machine.dtb" "/cpus/cpu@$((cpu + 4))" capacity-dmips-mhz 1024
  done
  disks "$directory/root.img"
  timeout "$seconds" qemu-system-aarch64 -accel tcg,thread=multi -M virt,gic-version=3 "${qemu[@]}" \
    -dtb "$work/machine.dtb" -serial stdio -no-reboot -kernel "$directory/vmlinuz" \
    -append "console=ttyAMA0 quiet panic=-1 root=/dev/nvme0n1 rootfstype=ext4 rw init=/vm-init vm.cgroups=v2" \
    < /dev/null > >(sed -u 's/\r//g') 2>&1 &
  machine=$!
  wait $machine || true
  take_out "$out"
}

"$@"
