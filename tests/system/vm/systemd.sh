# shellcheck shell=bash source-path=SCRIPTDIR
# systemd, with its own cgroup v2.
. ./look.sh
# service NAME SETTING...: a look from a service with these settings
service() {
  local name=$1
  shift
  systemd-run --quiet --wait --pipe --collect --working-directory /job "${@/#/--property=}" \
    python3 look.py > "/out/$name.json"
}
machine
service quota CPUQuota=150%
service cpus AllowedCPUs=2-3
service both CPUQuota=250% AllowedCPUs=1-3
systemctl start outer.slice
systemctl set-property --runtime outer.slice CPUQuota=75%
service tighter-slice CPUQuota=200% Slice=outer.slice
