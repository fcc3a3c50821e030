"""The differences that are known: `known.json`, a list of objects.

- `file`, `statement`: the file of the suite and the hash of the statement (`queries.statement_hash`)
- `modes`: the modes in which it differs; all if absent
- `versions`: the servers on which it differs; all if absent
- `ends_server`: true for a statement that ends the server itself, without pystachio: it doesn't run
- `sometimes`: true where the form of the files, or chance, decides; otherwise an entry that doesn't differ is a failure
- `reason`: a sentence, and where docs/exactness.md says so
"""

import json
import pathlib

PATH = pathlib.Path(__file__).with_name("known.json")


class Known:
    """The list, and in which modes its entries were seen not to hold."""

    def __init__(self, version, path=PATH):
        entries = json.loads(path.read_text(encoding="utf-8"))
        self.entries = [entry for entry in entries if version in entry.get("versions", [version])]
        self.stale = []

    def find(self, file, statement, mode):
        """The entry for a statement in a mode, or None."""
        return next((entry for entry in self.entries if entry["file"] == file and entry["statement"] == statement
                     and mode in entry.get("modes", [mode])), None)

    def ends_server(self, file, statement):
        """Whether a statement is one that ends this server."""
        return any(entry.get("ends_server") and entry["file"] == file and entry["statement"] == statement for entry in self.entries)

    def agreed(self, entry, mode):
        """Notes that a statement didn't differ in a mode in which it should."""
        if not entry.get("sometimes"):
            self.stale.append((entry, mode))
