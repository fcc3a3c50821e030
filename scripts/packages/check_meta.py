#!/usr/bin/env python3
"""Whether META.json of an unpacked archive follows the PGXN Meta Spec 1.0.0; prints what does not.

usage: check_meta.py FOLDER

Source: PGXN Meta Spec 1.0.0, its required fields and the forms of its values.
"""

import json
import pathlib
import re
import sys

_VERSION = re.compile(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$")
_TERM = re.compile(r"^[^\s/\\\x00-\x1f\x7f]{2,}$")
_LICENSES = {"agpl_3", "apache_1_1", "apache_2_0", "artistic_1", "artistic_2", "bsd", "freebsd", "gfdl_1_2", "gfdl_1_3", "gpl_1", "gpl_2", "gpl_3",
             "lgpl_2_1", "lgpl_3_0", "mit", "mozilla_1_0", "mozilla_1_1", "openssl", "perl_5", "postgresql", "qpl_1_0", "ssleay", "sun", "zlib",
             "open_source", "restricted", "unrestricted", "unknown"}
_KNOWN = {"name", "version", "abstract", "description", "maintainer", "license", "provides", "prereqs", "release_status", "resources", "no_index",
          "generated_by", "tags", "meta-spec"}


def faults(meta, folder):
    for name in ("abstract", "maintainer", "license", "provides", "name", "version", "meta-spec"):
        if not meta.get(name):
            yield f"{name} is missing"
    for name in meta.keys() - _KNOWN:
        if not name.lower().startswith("x_"):
            yield f"{name} is no field of the specification"
    if not _TERM.match(meta.get("name", "")):
        yield f"name is no term: {meta.get('name')}"
    if not _VERSION.match(meta.get("version", "")):
        yield f"version is not semantic: {meta.get('version')}"
    if meta.get("license") not in _LICENSES:
        yield f"license is none of the specification's: {meta.get('license')}"
    if meta.get("release_status", "stable") not in ("stable", "testing", "unstable"):
        yield f"release_status is none: {meta['release_status']}"
    if meta.get("meta-spec", {}).get("version") != "1.0.0":
        yield "meta-spec has another version than 1.0.0"
    maintainers = meta.get("maintainer", [])
    for maintainer in [maintainers] if isinstance(maintainers, str) else maintainers:
        if not re.match(r"^[^<>]+ <[^<>@\s]+@[^<>@\s]+>$", maintainer):
            yield f"a maintainer is no name with an address: {maintainer}"
    for name, extension in meta.get("provides", {}).items():
        if not _VERSION.match(extension.get("version", "")):
            yield f"provides {name} without a semantic version"
        for field in ("file", "docfile"):
            if field in extension or field == "file":
                if not (folder / extension.get(field, "/")).is_file():
                    yield f"provides {name}: its {field} {extension.get(field)} is not there"
    for phase, relations in meta.get("prereqs", {}).items():
        if phase not in ("configure", "build", "test", "runtime", "develop"):
            yield f"prereqs has a phase {phase}"
        for relation, required in relations.items():
            if relation not in ("requires", "recommends", "suggests", "conflicts"):
                yield f"prereqs {phase} has a relation {relation}"
            for name, version in required.items():
                if version not in (0, "0") and not _VERSION.match(version):
                    yield f"prereqs {phase} {relation} {name} {version}: the version is not semantic"
    for tag in meta.get("tags", []):
        if not 0 < len(tag) < 256:
            yield f"a tag is empty or too long: {tag}"


def main():
    folder = pathlib.Path(sys.argv[1])
    found = list(faults(json.loads((folder / "META.json").read_text(encoding="utf-8")), folder))
    print("\n".join(found) or "META.json: no fault")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
