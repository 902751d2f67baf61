# shellcheck shell=bash
# For vm.sh and vm-arm.sh: what goes into a machine and what comes back, on disks of NVMe, which the kernel has built in:
# 1 root, 2 job, 3 out. Only out keeps what is written.

# put_in DIRECTORY COMMAND...: the job, with the files of the directory unless that is empty. Whatever happens then, the
# machine, whose process is to be in $machine, is ended and $work is removed.
put_in() {
  work=$(mktemp -d)
  machine=
  trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT
  mkdir "$work/job"
  [ -z "$1" ] || cp -a "$1/." "$work/job"
  shift
  printf '%s\n' "$*" > "$work/job/.command"
  tar -cf "$work/job.tar" -C "$work/job" .
  truncate -s %1M "$work/job.tar"
  truncate -s 16M "$work/out.tar"
}

# disk NUMBER FILE SNAPSHOT, added to the arguments in qemu
disk() {
  qemu+=(-drive "file=$2,if=none,id=disk$1,format=raw,snapshot=$3" -device "nvme-ns,drive=disk$1,bus=disks,nsid=$1")
}

# disks ROOT: the three of them
disks() {
  qemu+=(-device "nvme,id=disks,serial=vm")
  disk 1 "$1" on
  disk 2 "$work/job.tar" on
  disk 3 "$work/out.tar" off
}

# take_out DIRECTORY: what the command left, unless the directory is empty; the status is the command's, or 97
take_out() {
  local status
  status=$(tar -xOf "$work/out.tar" ./.status 2>/dev/null) || return 97
  [ -z "$1" ] || tar -xf "$work/out.tar" -C "$1" --exclude ./.status
  return "$status"
}
