#!/usr/bin/env bash
# Builds, starts the private cluster `demo` and runs TPC-H in it. usage: scripts/demo.sh [SCALE_FACTOR]
source "$(dirname "$0")/environment.sh"

scale=${1:-1}
[[ $scale =~ ^[0-9]+([.][0-9]+)?$ ]] || die "SF=$scale is not a scale factor: give a number such as 1 or 0.1"
say "building: 10 to 14 minutes the first time on two idle cores, seconds if nothing has changed"
stage=$("$project_root/scripts/build.sh")
say "starting the cluster target/demo: seconds"
folder=$("$project_root/scripts/cluster.sh" start demo "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo demo)
exec python3 "$project_root/scripts/demo.py" "$conninfo" "$folder" "$scale" \
    "$stage/extension/pystachio--$(workspace_version).sql"
