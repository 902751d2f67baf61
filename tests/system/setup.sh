#!/bin/bash
# The environments that the tests here run in: containers, virtual machines, a Slurm node.
#
#   tests/system/setup.sh [podman] [vm] [vm-arm] [slurm]     all of them, as root, on Debian
#
# What is made lies in build/environments and is as old as that directory: remove it to begin anew. There podman keeps the
# layers of the images that tests build, and in /run/tflaunch-podman-* what it knows of the running machine.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
environments=$here/../../build/environments
declare -A packages=(
  [podman]="podman conmon runc crun catatonit netavark buildah mmdebstrap"
  [vm]="qemu-system-x86 mmdebstrap e2fsprogs"
  [vm-arm]="qemu-system-arm device-tree-compiler mmdebstrap e2fsprogs"
  [slurm]="slurm-wlm munge openmpi-bin libhwloc15"
)
[ $# -gt 0 ] || set -- podman vm vm-arm slurm

install_packages() { # the lists of packages are for vm.sh too
  apt-get -qq update
  dpkg --status "$@" 2>/dev/null | grep -c '^Status: install ok installed' | grep -qx $# && return
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

build() {
  rm -rf "$environments/$1.part"
  mkdir -p "$environments/$1.part"
  "$here/$1.sh" build "$environments/$1.part"
  mv "$environments/$1.part" "$environments/$1"
}

missing=()
for name; do
  [ -e "$environments/$name" ] || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "setting up ${missing[*]}" >&2
needed=()
for name in "${missing[@]}"; do
  read -ra words <<<"${packages[$name]}"
  needed+=("${words[@]}")
done
install_packages "${needed[@]}"
builds=()
for name in "${missing[@]}"; do # side by side: downloading, unpacking and writing wait for different things
  build "$name" &
  builds+=($!)
done
status=0
for build in "${builds[@]}"; do
  wait "$build" || status=1
done
exit "$status"
