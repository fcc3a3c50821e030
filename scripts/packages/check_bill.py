#!/usr/bin/env python3
"""Whether a bill of materials has CycloneDX's form, has what is linked and has none of what only builds need; prints what is wrong.

usage: check_bill.py FILE engine|extension
"""

import json
import pathlib
import re
import sys

# What is certainly in a binary, what certainly isn't: procedural macros, generators, build scripts' tools, tests, the other binary's.
_WITH = {"engine": {"datafusion-physical-plan", "parquet", "arrow-array", "tonic", "zstd-sys", "rust-std"},
         "extension": {"pgrx", "pgrx-pg-sys", "pystachio-plan", "arrow-ipc", "rust-std"}}
_WITHOUT = {"serde_derive", "bindgen", "cc", "proptest", "pystachio-fuzz", "pystachio-cases"}
_OTHERS = {"engine": {"pgrx", "syn", "quote"}, "extension": {"datafusion-common", "tonic"}}


def faults(bill, binary):
    if bill.get("bomFormat") != "CycloneDX" or bill.get("specVersion") != "1.5":
        yield "it is no CycloneDX document of version 1.5"
    if not re.match(r"^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", bill.get("serialNumber", "")):
        yield f"its serial number is no UUID: {bill.get('serialNumber')}"
    components = bill["components"] + [bill["metadata"]["component"]]
    names = {component["name"] for component in components}
    for name in sorted(_WITH[binary] - names):
        yield f"{name} is missing"
    for name in sorted((_WITHOUT | _OTHERS[binary]) & names):
        yield f"{name} does not end in the binary"
    references = [component["bom-ref"] for component in components]
    if len(set(references)) != len(references):
        yield "two components have one reference"
    for component in components:
        if not component.get("licenses"):
            yield f"{component['name']} has no licence"
        if component["purl"].startswith("pkg:cargo/") and not component.get("hashes"):
            yield f"{component['name']} has no hash"
    for entry in bill["dependencies"]:
        for reference in [entry["ref"], *entry["dependsOn"]]:
            if reference not in references:
                yield f"dependencies name {reference}, which is no component"


def main():
    found = list(faults(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2]))
    print("\n".join(found) or f"{sys.argv[1]}: no fault")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
