#!/usr/bin/env python3
"""Gets the SQL files of PostgreSQL's regression suite from Debian's source packages, and prints the folder that has them.

usage: source.py CACHE VERSION        -> CACHE/core/VERSION (sql, data, parallel_schedule)

- apt's lists, sources and cache are folders of our own below CACHE: nothing of the system's is changed or installed.
- The newest source package that can be had is taken; an index may name one that its mirror doesn't hold.
- Where Debian has no source package of VERSION, the oldest supported version's files serve.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

OLDEST = "15"
# Releases of Debian with a source package of a supported version; the machine's own come first.
_RELEASES = ["bookworm", "trixie", "forky"]
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEFAULT_MIRROR = "http://deb.debian.org/debian"
_TIMEOUT_S = 600
_WANTED = re.compile(r"[^/]+/src/test/regress/((sql|data)/[^/]+\.(sql|data)|parallel_schedule)")


def suite(cache, version):
    """The folder with the suite's files for a server of `version`."""
    cache = pathlib.Path(cache) / "core"
    for wanted in dict.fromkeys([version, OLDEST]):
        folder = cache / wanted
        if (folder / "parallel_schedule").exists():
            return folder
        if (cache / f"{wanted}.absent").exists():
            continue
        found = _fetch(cache, wanted, folder)
        if found:
            return folder
        (cache / f"{wanted}.absent").touch()
    (cache / f"{OLDEST}.absent").unlink(missing_ok=True)
    raise SystemExit("error: no source package of PostgreSQL could be had, so its regression suite can't be run")


def files(folder):
    """The files in the order of the schedule."""
    found = []
    for line in (folder / "parallel_schedule").read_text(encoding="utf-8").splitlines():
        kind, _, names = line.partition(":")
        if kind.strip() == "test":
            found.extend(folder / "sql" / f"{name}.sql" for name in names.split())
    return [path for path in found if path.exists()]


def _fetch(cache, version, folder):
    apt = _apt(cache)
    versions = re.findall(r"^Version: (\S+)", _run(["apt-cache", *apt, "showsrc", f"postgresql-{version}"]), re.MULTILINE)
    for package in sorted(set(versions), key=_version_key, reverse=True):
        work = cache / "download"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        _run(["apt-get", "-q", *apt, "source", "--download-only", f"postgresql-{version}={package}"], work)
        archives = list(work.glob("*.orig.tar.*"))
        archives = [path for path in archives if path.suffix != ".asc"]
        if archives:
            _unpack(archives[0], folder)
            shutil.rmtree(work)
            return True
        print(f"postgresql-{version} {package} can't be had from the mirror", file=sys.stderr)
    return False


def _apt(cache):
    """Options that give apt lists and sources of our own; its lists are brought up to date once."""
    home = cache / "apt"
    options = [f"-oDir::Etc::sourcelist={home}/sources.list", "-oDir::Etc::sourceparts=-", f"-oDir::State::Lists={home}/lists",
               f"-oDir::Cache={home}/cache", "-oAPT::Sandbox::User=root"]
    if not (home / "updated").exists():
        for place in ("lists/partial", "cache/archives/partial"):
            (home / place).mkdir(parents=True, exist_ok=True)
        (home / "sources.list").write_text("".join(line + "\n" for line in _sources()), encoding="utf-8")
        _run(["apt-get", "-q", *options, "update"])
        (home / "updated").touch()
    return options


def _sources():
    main, security = _mirrors()
    lines = [f"deb-src [signed-by={_KEYS}] {main} {release} main" for release in _RELEASES]
    return lines + [f"deb-src [signed-by={_KEYS}] {security} {release}-security main" for release in _RELEASES[:2]]


def _mirrors():
    """The mirror that this machine's own sources name, and its security archive."""
    text = ""
    for path in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("debian*"))]:
        if path.is_file():
            text += path.read_text(encoding="utf-8")
    found = re.findall(r"https?://[^\s]+/debian/?(?=\s|$)", text) or [_DEFAULT_MIRROR]
    security = re.findall(r"https?://[^\s]+/debian-security/?(?=\s|$)", text)
    return found[0].rstrip("/"), (security or [re.sub(r"debian/?$", "debian-security", found[0])])[0].rstrip("/")


def _version_key(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def _run(command, folder=None):
    """What a command prints; one that fails or does not end gives what it printed until then."""
    try:
        return subprocess.run(command, cwd=folder, timeout=_TIMEOUT_S, check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).stdout
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return ""


def _unpack(archive, folder):
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    with tarfile.open(archive) as source:
        for member in source:
            found = _WANTED.fullmatch(member.name)
            if found and member.isfile():
                target = new / found[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.extractfile(member).read())
    new.rename(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(suite(sys.argv[1], sys.argv[2]))
