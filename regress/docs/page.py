"""A page of README or docs/: its fenced blocks, what is to be done with them, its links and anchors.

What a block is, its language says; what is to be done with it, HTML comments in the lines right above it, which readers don't see:

| comment | block | meaning |
|---|---|---|
| `<!-- test: skip, REASON -->` | `sql`, `sh` | is not run |
| `<!-- test: error -->` | `sql` | a statement of it fails, and an output to be compared follows |
| `<!-- test: output -->` | `text` | is the end of what the block before it prints |
| `<!-- test: numbers -->` | `text` | the same, where other numbers and other widths of columns are as good |
| `<!-- test: prepare, tpch -->` | the page | has the extension, and TPC-H in the schema `tpch`, from its first block on; `extension`: the extension alone |

In an output `…` stands for anything, on a line of its own for any lines. Blocks of other languages are not looked at.
"""

import dataclasses
import re

_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_DIRECTIVE = re.compile(r"^\s*<!-- test: (\w+)(?:, (.*?))? -->\s*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\]|!\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
RUN_LANGUAGES = ("sql", "sh")
_OUTPUT_KINDS = ("output", "numbers")
_BLOCK_KINDS = ("skip", "error", *_OUTPUT_KINDS)
PREPARATIONS = ("extension", "tpch")


@dataclasses.dataclass
class Block:
    """A fenced block. `line` counts from 1; `directives` are kinds with their text."""

    line: int
    language: str
    text: str
    directives: dict


class PageError(ValueError):
    """A page that can't be run as it is written."""


class Page:
    """What is in a page. Raises PageError for directives that mean nothing."""

    def __init__(self, name, text):
        self.name, self.text, self.blocks, self.preparation = name, text, [], None
        self._read(text.splitlines())

    def _read(self, lines):
        pending, place, prose = {}, 0, []
        while place < len(lines):
            fence, directive = _FENCE.match(lines[place]), _DIRECTIVE.match(lines[place])
            if fence:
                end = next((other for other in range(place + 1, len(lines)) if lines[other].strip() == "```"), None)
                if end is None:
                    raise PageError(f"{self.name}:{place + 1}: the block has no end")
                body = [line.removeprefix(fence[1]) for line in lines[place + 1:end]]
                self._add(Block(place + 1, fence[2], "\n".join(body), pending))
                pending, place = {}, end
            elif directive:
                self._direct(place + 1, directive[1], directive[2], pending)
            elif pending:
                raise PageError(f"{self.name}:{place + 1}: no block follows the comment for the test")
            else:
                prose.append(lines[place])
            place += 1
        self.prose = prose

    def _direct(self, line, kind, text, pending):
        if kind == "prepare" and text in PREPARATIONS and not self.blocks:
            self.preparation = text
        elif kind in _BLOCK_KINDS and (kind != "skip" or text):
            pending[kind] = text
        else:
            raise PageError(f"{self.name}:{line}: the comment for the test means nothing: {kind}, {text}")

    def _add(self, block):
        is_output = any(kind in block.directives for kind in _OUTPUT_KINDS)
        if is_output and (block.language != "text" or not self.blocks or self.blocks[-1].language not in RUN_LANGUAGES):
            raise PageError(f"{self.name}:{block.line}: an output is a block of text right after one that runs")
        if set(block.directives) & {"skip", "error"} and block.language not in RUN_LANGUAGES:
            raise PageError(f"{self.name}:{block.line}: only blocks of {' and '.join(RUN_LANGUAGES)} run")
        self.blocks.append(block)

    def steps(self):
        """The blocks that are to run or skipped, each with the output to be compared, if one follows."""
        for place, block in enumerate(self.blocks):
            if block.language in RUN_LANGUAGES:
                after = self.blocks[place + 1] if place + 1 < len(self.blocks) else None
                is_output = after is not None and any(kind in after.directives for kind in _OUTPUT_KINDS)
                yield block, after if is_output else None

    def targets(self):
        """Where links and pictures lead, outside of blocks and of code in lines."""
        text = re.sub(r"`[^`\n]*`", lambda code: "`" * len(code[0]), "\n".join(self.prose))
        return [*_LINK.findall(text), *_IMAGE.findall(text)]

    def anchors(self):
        """The fragments of its headings, as GitHub and mdBook make them."""
        found = []
        for line in self.prose:
            heading = re.match(r"^#{1,6} +(.*?)\s*$", line)
            if heading:
                words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
                anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
                count = sum(other.rsplit("-", 1)[0] == anchor or other == anchor for other in found)
                found.append(f"{anchor}-{count}" if count and anchor in found else anchor)
        return found

    def table_rows(self, first_cell):
        """The rows of all tables whose first cell matches the expression, as lists of cells."""
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in self.prose if line.startswith("|")]
        return [row for row in rows if re.fullmatch(first_cell, row[0])]


def _pattern(line, with_numbers):
    """The expression that a line of an output stands for."""
    parts = []
    for part in line.rstrip().split("…"):
        text = re.escape(part)
        if with_numbers:
            text = re.sub(r"\d+(?:\\\.\d+)?", r"\\d+(?:\\.\\d+)?", text)
            text = re.sub(r"(?:\\ )+", r"\\s*", text)
            text = re.sub(r"(?:\\-){3,}", r"-+", text)
        parts.append(text)
    return re.compile(".*".join(parts) + r"\s*")


def mismatch(expected, actual, with_numbers=False):
    """None if `actual` ends with `expected`, otherwise what differs.

    Blanks at the ends of lines and empty lines at the end of either are nothing.
    """
    wanted, lines = expected.rstrip().splitlines(), actual.rstrip().splitlines()
    # Which lines of the output may be the last that the wanted ones so far have matched; -1: none yet.
    places = set(range(-1, len(lines)))
    for line in wanted:
        if line.strip() == "…":
            places = set(range(min(places), len(lines))) if places else places
            continue
        pattern = _pattern(line, with_numbers)
        places = {place + 1 for place in places if place + 1 < len(lines) and pattern.fullmatch(lines[place + 1])}
        if not places:
            return f"no such line where it should be: {line}\nprinted:\n{actual.rstrip()}"
    if len(lines) - 1 not in places:
        return f"more is printed than the page shows:\n{actual.rstrip()}"
    return None
