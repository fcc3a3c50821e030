"""Whether links lead somewhere: files, headings in them, and every page from the table of contents.

Deliberately absent: addresses of other hosts. A test does not depend on them.
"""

import pathlib

from docs.page import Page

# Pages outside of docs/ that people read too.
_OTHERS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "regress/README.md", "kernels/README.md")
CONTENTS = "docs/SUMMARY.md"


def check(root, pages, claims):
    """One claim for each link, and one for each page of docs/ that the contents name."""
    known = {(root / name).resolve(): page for name, page in pages.items()}
    for name in _OTHERS:
        known[(root / name).resolve()] = Page(name, (root / name).read_text(encoding="utf-8"))
    for path, page in known.items():
        for target in page.targets():
            if "://" not in target and not target.startswith("mailto:"):
                claims.record(f"{page.name}: link to {target}", fault(path, target, known))
    named = {(root / "docs" / target).resolve() for target in pages[CONTENTS].targets()}
    for name in pages:
        if name.startswith("docs/") and name != CONTENTS:
            claims.check(f"{CONTENTS} names {name}", (root / name).resolve() in named)


def fault(path, target, known):
    """Why a link of the page at `path` leads nowhere, or None."""
    file_name, _, anchor = target.partition("#")
    found = (path.parent / file_name).resolve() if file_name else path
    if not found.exists():
        return "there is no such file"
    if not anchor:
        return None
    page = known.get(found) or (Page(file_name, found.read_text(encoding="utf-8")) if pathlib.Path(found).suffix == ".md" else None)
    if page is None or anchor not in page.anchors():
        return f"there is no such heading; there are {', '.join(page.anchors()) if page else 'none'}"
    return None
