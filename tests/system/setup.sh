#!/bin/bash
# The environments that the tests here run in: containers, virtual machines, a Slurm node.
#
#   tests/system/setup.sh [podman] [vm] [vm-arm] [slurm]     all of them, as root, on Debian
#
# What is made lies in build/environments and is as old as that directory: remove it to begin anew.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
environments=$here/../../build/environments
[ $# -gt 0 ] || set -- podman vm vm-arm slurm

for name; do
  [ -e "$environments/$name" ] && continue
  echo "setting up $name" >&2
  rm -rf "$environments/$name.part"
  mkdir -p "$environments/$name.part"
  "$here/$name.sh" build "$environments/$name.part"
  mv "$environments/$name.part" "$environments/$name"
done
