#!/usr/bin/env python3
"""Lists what is in the binaries: a CycloneDX document each, and the texts of the licences of others' code.

usage: materials.py FOLDER MAJOR        MAJOR: a version of PostgreSQL, whose features the extension is resolved with

Writes pystachio-<version>-engine.cdx.json, pystachio-<version>-extension.cdx.json and THIRD-PARTY. Both lists are of the crates that are
linked, with the features that they are built with: cargo's own resolution of the workspace, without what only builds need (build
scripts, procedural macros, tests). The same commit gives the same bytes (SOURCE_DATE_EPOCH).
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

_BINARIES = {"engine": "pystachio-worker", "extension": "pystachio"}
_LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
_LINE = re.compile(r"^(\d+)(\S+) v(\S+?)( \(proc-macro\))?( \([^)]*\))?( \(\*\))?$")
_NAMESPACE = uuid.UUID("8b1d3c52-6f0e-5a54-9d0e-5d0c6f1f7a52")
_OF_THE_REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def selection(major):
    """What scripts/build.sh gives cargo, so that features are those of the binaries."""
    return ["--locked", "--no-default-features", "--features", f"pystachio/pg{major}"]


def linked(major):
    """Which crates each crate links: {(name, version): [(name, version)]}, each list sorted."""
    text = run("cargo", "tree", *selection(major), "--workspace", "--exclude", "pystachio-fuzz", "--exclude", "pystachio-cases",
               "--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", "{p}")
    edges, path = {}, []
    for line in filter(None, text.splitlines()):
        match = _LINE.match(line)
        if not match:
            sys.exit(f"error: cargo tree printed a line of an unknown form: {line}")
        depth, crate = int(match[1]), (match[2], match[3])
        del path[depth:]
        edges.setdefault(crate, set())
        if path:
            edges[path[-1]].add(crate)
        path.append(crate)
    return {crate: sorted(others) for crate, others in edges.items()}


def reached(edges, root):
    """All crates that a root links, directly or not, itself included; sorted."""
    seen, waiting = set(), [root]
    while waiting:
        crate = waiting.pop()
        if crate not in seen:
            seen.add(crate)
            waiting.extend(edges[crate])
    return sorted(seen)


def checksums(lock):
    """The hashes of the crates' archives: {(name, version): sha256}."""
    found = {}
    for block in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "([^"]*)"$', block, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def address(crate, package):
    """The package URL of a crate; those of this workspace are of no registry."""
    kind = "cargo" if package["source"] else "generic"
    return f"pkg:{kind}/{crate[0]}@{crate[1].replace('+', '%2B')}"


def component(crate, package, checksum):
    entry = {"type": "library", "bom-ref": address(crate, package), "name": crate[0], "version": crate[1], "purl": address(crate, package)}
    if package["license"]:
        # A slash is what OR once was.
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    elif package["license_file"]:
        entry["licenses"] = [{"license": {"name": package["license_file"]}}]
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def document(binary, root, edges, packages, sums):
    """A CycloneDX document of one binary."""
    crates = reached(edges, root)
    components = [component(crate, packages[crate], sums.get(crate)) for crate in crates]
    own = components.pop(crates.index(root)) | {"type": "application" if binary == "engine" else "library"}
    compiler = run("rustc", "--version").split()[1]
    standard = {"type": "library", "bom-ref": f"pkg:generic/rust-std@{compiler}", "name": "rust-std", "version": compiler,
                "purl": f"pkg:generic/rust-std@{compiler}", "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    moment = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    graph = [{"ref": address(crate, packages[crate]),
              "dependsOn": [address(other, packages[other]) for other in edges[crate]] + ([standard["bom-ref"]] if crate == root else [])}
             for crate in crates]
    content = {"components": components + [standard], "dependencies": graph + [{"ref": standard["bom-ref"], "dependsOn": []}]}
    number = uuid.uuid5(_NAMESPACE, json.dumps([own, content], sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{number}", "version": 1,
            "metadata": {"timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": own}, **content}


def third_party(crates, packages):
    """The licences of all crates of others, each text once, with the names of those that it belongs to."""
    texts, lines, without = {}, [], []
    for crate in crates:
        package = packages[crate]
        if not package["source"]:
            continue
        lines.append(f"{crate[0]} {crate[1]}: {package['license'] or package['license_file']}")
        files = sorted(file for file in pathlib.Path(package["manifest_path"]).parent.iterdir()
                       if file.is_file() and _LICENCE_FILE.match(file.name))
        if not files:
            without.append(f"{crate[0]} {crate[1]}")
        for file in files:
            text = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
            texts.setdefault(hashlib.sha256(text.encode()).hexdigest(), (text, []))[1].append(f"{crate[0]} {crate[1]} ({file.name})")
    parts = ["Code of others in pystachio's binaries, and its licences.\n\n" + "\n".join(lines)]
    if without:
        parts.append("Archives without a text of their licence:\n" + "\n".join(without))
    parts += ["\n".join(names) + "\n\n" + text for text, names in sorted(texts.values(), key=lambda entry: entry[1])]
    return ("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n"


def main():
    folder, major = pathlib.Path(sys.argv[1]), sys.argv[2]
    described = json.loads(run("cargo", "metadata", "--format-version", "1", *selection(major)))
    packages = {(package["name"], package["version"]): package for package in described["packages"]}
    for package in packages.values():
        if package["source"] not in (None, _OF_THE_REGISTRY):
            sys.exit(f"error: {package['name']} comes from {package['source']}, and not from crates.io")
    edges = linked(major)
    sums = checksums(pathlib.Path("Cargo.lock").read_text(encoding="utf-8"))
    everything = set()
    for binary, name in _BINARIES.items():
        root = next(crate for crate in edges if crate[0] == name)
        everything.update(reached(edges, root))
        text = json.dumps(document(binary, root, edges, packages, sums), indent=1, ensure_ascii=False)
        (folder / f"pystachio-{root[1]}-{binary}.cdx.json").write_text(text + "\n", encoding="utf-8")
    (folder / "THIRD-PARTY").write_text(third_party(sorted(everything), packages), encoding="utf-8")


if __name__ == "__main__":
    main()
