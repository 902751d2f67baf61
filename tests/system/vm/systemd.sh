# shellcheck shell=bash source-path=SCRIPTDIR
# systemd, with its own cgroup v2.
. ./look.sh
# service explain|run NAME SETTING...: a look from a service with these settings
service() {
  local what=$1 name=$2
  shift 2
  systemd-run --quiet --wait --pipe --collect --working-directory /job "${@/#/--property=}" \
    python3 look.py "$what" > "/out/$name.json"
}
machine
service explain quota CPUQuota=150%
service explain cpus AllowedCPUs=2-3
service run both CPUQuota=250% AllowedCPUs=1-3
systemctl start outer.slice
systemctl set-property --runtime outer.slice CPUQuota=75%
service explain tighter-slice CPUQuota=200% Slice=outer.slice
