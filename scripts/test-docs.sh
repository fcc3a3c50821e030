#!/usr/bin/env bash
# Runs what README and docs/ show in a private cluster, and compares their lists with the code's (regress/docs).
#
# usage: scripts/test-docs.sh [--stage STAGE] [OPTION…]    options of regress/docs/run.py; without a stage, builds
source "$(dirname "$0")/environment.sh"

stage=
if [[ ${1:-} == --stage ]]; then
    stage=$2
    shift 2
fi
[[ -n $stage ]] || stage=$("$project_root/scripts/build.sh")
trap '"$project_root/scripts/cluster.sh" stop docs' EXIT
folder=$("$project_root/scripts/cluster.sh" create docs "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo docs)
mkdir "$folder/pages"
if [[ $(id -u) == 0 ]]; then chown "$(server_user)" "$folder/pages"; fi
# Programs of the server's version, where it brings them: pg_dump refuses a newer server.
PATH=$folder/server$(cat "$folder/server/bindir"):$PATH
python3 -m unittest discover -q -s "$project_root/regress/docs" -t "$project_root/regress" -p '*_test.py' >&2
python3 "$project_root/regress/docs/run.py" "$conninfo" "$folder/pages" "$@"
