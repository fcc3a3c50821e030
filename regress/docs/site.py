#!/usr/bin/env python3
"""Looks for links of a built site that lead nowhere. usage: site.py FOLDER

Files and fragments within the folder; addresses of other hosts are not asked.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class LinkReader(html.parser.HTMLParser):
    """The links, pictures and fragments of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.fragments = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and tag in ("a", "img") and value:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.fragments.add(value)


def broken_links(folder):
    """Page and target of each link that leads nowhere, and how many links there are."""
    pages = {path: LinkReader(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken, count = [], 0
    for path, page in pages.items():
        for target in page.targets:
            address = urllib.parse.urlsplit(target)
            if address.scheme or address.netloc:
                continue
            count += 1
            found = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            fragment = urllib.parse.unquote(address.fragment)
            if not found.exists() or (fragment and found in pages and fragment not in pages[found].fragments):
                broken.append((path.relative_to(folder), target))
    return broken, count


def main():
    broken, count = broken_links(pathlib.Path(sys.argv[1]).resolve())
    for page, target in broken:
        print(f"{page}: {target} leads nowhere")
    print(f"{count} links, {len(broken)} broken")
    return 1 if broken or not count else 0


if __name__ == "__main__":
    sys.exit(main())
