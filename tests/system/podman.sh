#!/bin/bash
# Containers by podman, on Debian, as root; neither an image registry nor systemd is needed.
#
#   tests/system/podman.sh build DIRECTORY     DIRECTORY/podman and the image tflaunch-base (called by setup.sh)
#
# DIRECTORY/podman is podman with its own settings, and with images and containers below DIRECTORY. The directory may be
# moved before anything is run from it.
set -euo pipefail

build() {
  cd "$1"
  write_settings
  import_base_image
}

write_settings() {
  # crun 1.8 refuses a machine that mounts cgroup v1 hierarchies beside v2.
  local runtime=runc files processes
  [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] && runtime=crun
  # Without CAP_SYS_RESOURCE no container may have more than podman itself, which may lower its own.
  files=$(ulimit -Hn)
  processes=$(ulimit -Hu)
  [ "$processes" != unlimited ] && [ "$processes" -lt 32768 ] || processes=32768

  cat >containers.conf <<END
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
netns = "host"
log_driver = "k8s-file"

[engine]
runtime = "$runtime"
# systemd need not run here.
cgroup_manager = "cgroupfs"
events_logger = "file"

[network]
network_backend = "netavark"
END

  # A path for run-time state may have 50 characters, so it is not below the directory but named after it.
  cat >podman <<'END'
#!/bin/sh
here=$(dirname "$(realpath "$0")")
run=/run/tflaunch-podman-$(stat -c %i "$here")
export CONTAINERS_CONF="$here/containers.conf" TMPDIR="$here/tmp"
# Without the option a mount would stay behind, and the directory could not be removed.
exec podman --storage-opt overlay.skip_mount_home=true --root "$here/storage" --runroot "$run/storage" --tmpdir "$run/libpod" "$@"
END
  chmod +x podman
  mkdir tmp
}

# The base of the images that the tests build: Python to run, a C compiler for the library of the view.
import_base_image() {
  local suite source
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  source=/etc/apt/sources.list.d/debian.sources
  [ -e "$source" ] || source=/etc/apt/sources.list
  mmdebstrap --quiet --mode=root --variant=minbase \
    --include=python3,python3-venv,ca-certificates,gcc,libc6-dev \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "$suite" base.tar "$source"
  ./podman import --quiet --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin' base.tar localhost/tflaunch-base >/dev/null
  rm base.tar
  # podman's record of its containers, of which there are none yet, holds the path of the directory.
  rm -rf storage/libpod storage/db.sql
}

if [ $# != 2 ] || [ "$1" != build ]; then
  echo "usage: $0 build DIRECTORY" >&2
  exit 2
fi
build "$2"
