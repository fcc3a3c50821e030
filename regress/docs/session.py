"""Where a page's blocks run: a database of its own, one psql for all blocks of SQL, a shell for each of the others.

Paths below /data, which pages show, are a folder of the server's user here, and stand as /data in what is printed again.
"""

import os
import re
import subprocess
import uuid

# Pages show small data: a block that takes longer hangs.
_BLOCK_SECONDS_MAX = 60
_ERROR = re.compile(r"^(?:psql:[^\n]*: )?(?:ERROR|FATAL|PANIC|error): ", re.MULTILINE)
_DATA = re.compile(r"(?<![\w./}])/data(?=[/'\"\s]|$)")


class PageSession:
    """The state that blocks of a page leave to the next. `environment` is libpq's; `folder` is shown as /data."""

    def __init__(self, environment, folder, scratch):
        self._environment = {**os.environ, **environment}
        self._folder, self._scratch = str(folder), scratch
        # Line by line, so that notices and errors stand between the rows where they came.
        self._psql = subprocess.Popen(
            ["timeout", str(_BLOCK_SECONDS_MAX * 5), "stdbuf", "-oL", "psql", "-X", "-q", "-P", "pager=off"], env=self._environment,
            cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
        self._psql.stdin.write("\\set QUIET off\n")

    def run(self, block):
        """Runs a block; returns what it printed, and whether something failed."""
        text = _DATA.sub(self._folder, block.text)
        printed, failed = self._run_sql(text) if block.language == "sql" else self._run_shell(text)
        return printed.replace(self._folder, "/data"), failed

    def _run_sql(self, text):
        end = f"end of block {uuid.uuid4()}"
        self._psql.stdin.write(f"{text}\n\\echo {end}\n")
        self._psql.stdin.flush()
        lines = []
        for line in self._psql.stdout:
            if line.rstrip() == end:
                break
            lines.append(line)
        else:
            return "".join(lines) + "psql ended\n", True
        printed = "".join(lines)
        return printed, bool(_ERROR.search(printed))

    def _run_shell(self, text):
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=self._environment, cwd=self._scratch, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_BLOCK_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired as late:
            return f"{late.stdout or ''}did not end within {_BLOCK_SECONDS_MAX} s\n", True
        return done.stdout, done.returncode != 0 or bool(_ERROR.search(done.stdout))

    def close(self):
        """Ends psql."""
        self._psql.stdin.close()
        self._psql.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
