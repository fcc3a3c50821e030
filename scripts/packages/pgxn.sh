# shellcheck shell=bash
# The archive of the PostgreSQL Extension Network: the sources of the commit with META.json. Sourced by scripts/packages.sh.
#
# Source: PGXN Meta Spec 1.0.0.

# META.json on standard output.
pgxn_meta() {
    python3 - "$package_version" "$summary" "$packager" "${SERVER_VERSIONS%% *}" <<'PYTHON'
import json
import sys

version, abstract, maintainer, oldest = sys.argv[1:]
print(json.dumps({
    "name": "pystachio",
    "abstract": abstract,
    "description": "Foreign tables over Parquet files, queried by a columnar engine outside the server, on processors and NVIDIA GPUs, with PostgreSQL's own results.",
    "version": version,
    "maintainer": [maintainer],
    "license": "apache_2_0",
    "provides": {"pystachio": {"abstract": abstract, "file": f"sql/pystachio--{version}.sql", "docfile": "README.md", "version": version}},
    "prereqs": {"runtime": {"requires": {"PostgreSQL": f"{oldest}.0.0"}}},
    "release_status": "unstable",
    "generated_by": "scripts/packages.sh",
    "meta-spec": {"version": "1.0.0", "url": "https://pgxn.org/meta/spec.txt"},
    "tags": ["parquet", "foreign data wrapper", "analytics", "columnar", "gpu"],
}, indent=2))
PYTHON
}

make_pgxn() {
    local name=pystachio-$package_version
    local folder=$work/pgxn/$name
    command -v zip > /dev/null || die "zip is missing: apt-get install zip"
    mkdir -p "$folder"
    git -C "$project_root" archive HEAD | tar -C "$folder" -xf -
    rm -rf "$folder/.ci"
    pgxn_meta > "$folder/META.json"
    settle "$folder"
    rm -f "$out/$name.zip"
    # Names in order, and no times of access or owners.
    (cd "$work/pgxn" && find "$name" -type f | LC_ALL=C sort | zip -q -X "-$level" -@ "$out/$name.zip")
    say "made $out/$name.zip"
}
