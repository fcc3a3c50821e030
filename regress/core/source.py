"""The files of PostgreSQL's regression suite, in the order of its schedule."""


def files(folder):
    """The files of the suite in `folder` (`src/test/regress` of the sources) in the order in which they run."""
    found = []
    for line in (folder / "parallel_schedule").read_text(encoding="utf-8").splitlines():
        kind, _, names = line.partition(":")
        if kind.strip() == "test":
            found.extend(folder / "sql" / f"{name}.sql" for name in names.split())
    return [path for path in found if path.exists()]
