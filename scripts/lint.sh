#!/usr/bin/env bash
# Formatting and lints; any finding fails.
source "$(dirname "$0")/environment.sh"

cd "$project_root"
prepare_target
cargo fmt --all --check
cargo clippy --release --locked --workspace --exclude pystachio --all-targets -- -D warnings
config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")
PGRX_PG_CONFIG_PATH=$config cargo clippy --release --locked --package pystachio \
    --no-default-features --features "pg$version" -- -D warnings
mapfile -t shell_scripts < <(grep -lE '^#!.*(bash|sh)$' scripts/*.sh scripts/packages/*.sh docker/*.sh regress/*.sh .ci/run)
for script in "${shell_scripts[@]}"; do bash -n "$script"; done
# What others source is looked at with them.
if command -v shellcheck >/dev/null; then shellcheck -x -P SCRIPTDIR -S warning "${shell_scripts[@]}"; fi
python3 - <<'PYTHON'
import ast, pathlib
for folder in ("scripts", "regress", "benches"):
    for path in pathlib.Path(folder).rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path))
PYTHON
say "lint: clean"
