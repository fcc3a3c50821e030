"""Pipes of scripts: with `pipefail`, a command that is read only in part may fail, by chance, with SIGPIPE."""

import pathlib
import re
import subprocess
import unittest

_ROOT = pathlib.Path(__file__).parents[2]
# A reader that ends before its input does. `sed -n 1p` and a comparison within [[ ]] read the whole input.
_EARLY = re.compile(r"\| *(?:LC_ALL=C +)?(?:grep +(?:-[a-zA-Z]*q|.* -m *[0-9])|head +-?n? ?[0-9]|sed +(?:-n +)?'?[^|]*[0-9]q)")


class Pipes(unittest.TestCase):
    def test_no_reader_ends_before_its_input(self):
        listed = subprocess.run(["git", "ls-files", "*.sh", ".ci", "docker"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
        found = []
        for name in listed.splitlines():
            text = (_ROOT / name).read_text(encoding="utf-8", errors="replace")
            if "pipefail" not in text and "environment.sh" not in text:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                # What comes after `|| true` may fail as it likes.
                if _EARLY.search(line) and "|| true" not in line and not line.lstrip().startswith("#"):
                    found.append(f"{name}:{number}: {line.strip()}")
        self.assertEqual(found, [], "\n".join(["readers that may end first:", *found]))


if __name__ == "__main__":
    unittest.main()
