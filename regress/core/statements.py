"""Splits a file for psql into statements and meta commands, as psql does.

- A semicolon ends a statement only outside quotes, dollar quotes, comments, parentheses and `BEGIN ATOMIC … END`.
- A backslash outside quotes begins a meta command, which takes the rest of its line. `\\;` joins two statements.
- Variables (`:name`, `:'name'`, `:"name"`, `:{?name}`) are put in where they are set, and only outside quotes.
- Rows after `COPY … FROM stdin` are read by the code that runs the statement (`Script.copy_rows`): psql, too, learns from the
  server alone that rows are wanted.

Deliberately absent: conditions (`\\if`) and what else commands mean, which is `run.py`'s.
"""

import collections
import re

_DOLLAR = re.compile(r"\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$")
_WORD = re.compile(r"[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*")
_NUMBER = re.compile(r"(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_VARIABLE = re.compile(r""":(?:\{\?(?P<asked>\w+)\}|(?P<plain>\w+)|'(?P<text>\w+)'|"(?P<name>\w+)")""")
_COMMAND = re.compile(r"\\([a-z!?_+]+|[A-Z]\b|;|\\)[ \t]*([^\n\\]*(?:\\(?!\\)[^\n\\]*)*)", re.IGNORECASE)


# A token as it stands, in lower case, in how many parentheses, and at which offset of the text.
Token = collections.namedtuple("Token", "text word nesting offset")


class Statement:
    """A statement: its text without the semicolon, the line where it begins, and the command that sent it (`gset`, …)
    with its arguments, or None."""

    def __init__(self, text, line, command=None, arguments=""):
        self.text, self.line, self.command, self.arguments = text, line, command, arguments


class Meta:
    """A meta command that stands alone: name without the backslash, the rest of its line as it is, and its line."""

    def __init__(self, command, arguments, line):
        self.command, self.arguments, self.line = command, arguments, line


class Script:
    """One file for psql. `variables` may change between elements, and `backslash_quotes` says whether a backslash
    escapes in plain quotes (standard_conforming_strings = off)."""

    def __init__(self, text, variables):
        self.text, self.variables, self.place, self.backslash_quotes = text, variables, 0, False

    def elements(self):
        """Yields every Statement and Meta in order; what follows is read only when it is asked for."""
        while self.place < len(self.text):
            element = self._next()
            if element:
                yield element

    def copy_rows(self):
        """The lines up to `\\.`, which are rows for COPY; the text goes on behind them."""
        begin = self.text.find("\n", self.place) + 1
        if not begin:
            self.place = len(self.text)
            return ""
        end = re.compile(r"^\\\.\r?$", re.MULTILINE).search(self.text, begin)
        self.place = end.end() if end else len(self.text)
        return self.text[begin:end.start() if end else len(self.text)]

    def _next(self):
        parts, begin = [], None
        nesting, atomic, words = 0, 0, []
        while self.place < len(self.text):
            character = self.text[self.place]
            piece = self._piece()
            if piece.isspace() or piece.startswith(("--", "/*")):
                if begin is not None:
                    parts.append(piece if piece.isspace() else " ")
                self.place += len(piece)
                continue
            if character == "\\":
                command, arguments, end = self._command()
                if command == ";":
                    parts.append(";")
                    self.place = end
                    continue
                line = self._line(self.place if begin is None else begin)
                self.place = end
                if begin is None or not command.startswith(("g", "crosstabview", "watch")):
                    if begin is None:
                        return Meta(command, arguments, line)
                    if command in ("r", "reset"):
                        return None
                    continue  # a command between the words of a statement changes nothing that matters here
                return Statement("".join(parts).strip(), line, command, arguments)
            if begin is None:
                begin = self.place
            if character == ";" and nesting <= 0 and not atomic:
                self.place += 1
                text = "".join(parts).strip()
                return Statement(text, self._line(begin)) if text else None
            if character in "([":
                nesting += 1
            elif character in ")]":
                nesting -= 1
            elif piece[0].isalpha():
                word = piece.lower()
                atomic = _atomic_depth(word, words, atomic)
                words.append(word)
            substitute = self._substitute() if character == ":" else None
            if substitute:
                piece, text = substitute
                parts.append(text)
            else:
                parts.append(piece)
            self.place += len(piece)
        text = "".join(parts).strip()
        return Statement(text, self._line(begin)) if text else None

    def _piece(self):
        """The token at the place: space, a comment, something quoted, a word, a number, or one character."""
        text, place = self.text, self.place
        character = text[place]
        if character.isspace():
            end = place
            while end < len(text) and text[end].isspace():
                end += 1
            return text[place:end]
        if text.startswith("--", place):
            end = text.find("\n", place)
            return text[place:end if end >= 0 else len(text)]
        if text.startswith("/*", place):
            return text[place:_comment_end(text, place)]
        if character == "'":
            return text[place:_quote_end(text, place, "'", self.backslash_quotes)]
        if character == '"':
            return text[place:_quote_end(text, place, '"', False)]
        if character in "eE" and text[place + 1:place + 2] == "'":
            return text[place:_quote_end(text, place + 1, "'", True)]
        if character == "$":
            tag = _DOLLAR.match(text, place)
            if tag:
                end = text.find(tag[0], tag.end())
                return text[place:end + len(tag[0]) if end >= 0 else len(text)]
        if character == ":" and text.startswith(("::", ":="), place):
            return text[place:place + 2]
        found = _WORD.match(text, place) or _NUMBER.match(text, place)
        return found[0] if found else character

    def _command(self):
        found = _COMMAND.match(self.text, self.place)
        if not found:
            return "unknown", "", self.place + 1
        if found[1] in (";", "\\"):
            return found[1], "", self.place + 2
        return found[1], found[2].strip(), found.end()

    def _substitute(self):
        found = _VARIABLE.match(self.text, self.place)
        if not found:
            return None
        if found["asked"]:
            return found[0], "TRUE" if found["asked"] in self.variables else "FALSE"
        name = found["plain"] or found["text"] or found["name"]
        if name not in self.variables:
            return None
        value = self.variables[name]
        if found["text"]:
            value = "'" + value.replace("'", "''") + "'"
        elif found["name"]:
            value = '"' + value.replace('"', '""') + '"'
        return found[0], value

    def _line(self, place):
        return self.text.count("\n", 0, place or 0) + 1


def tokens(text):
    """The Tokens of a statement without space and comments; parentheses have the nesting around them."""
    script, nesting, found = Script(text, {}), 0, []
    while script.place < len(text):
        piece, offset = script._piece(), script.place
        script.place += len(piece)
        if piece.isspace() or piece.startswith(("--", "/*")):
            continue
        if piece in (")", "]"):
            nesting -= 1
        found.append(Token(piece, piece.lower(), nesting, offset))
        if piece in ("(", "["):
            nesting += 1
    return found


def set_arguments(arguments, variables):
    """The words of a meta command's arguments, joined where quotes are, with variables put in: as `\\set` takes them."""
    words = []
    for word in re.findall(r"""(?:'(?:[^'\\]|''|\\.)*'|"[^"]*"|[^\s'"])+""", arguments):
        words.append(re.sub(r"""'((?:[^'\\]|''|\\.)*)'|:'(\w+)'|:"(\w+)"|:(\w+)""",
                            lambda found: _argument(found, variables), word))
    return words


def _argument(found, variables):
    if found[1] is not None:
        return found[1].replace("''", "'").replace("\\n", "\n").replace("\\\\", "\\")
    name = found[2] or found[3] or found[4]
    return variables.get(name, found[0])


def _atomic_depth(word, words, depth):
    """How deep BEGIN ATOMIC … END is nested after `word`; CASE counts inside, as it has an END too."""
    if words[:1] != ["create"] or not {"function", "procedure"} & set(words[:4]):
        return 0
    if word == "begin" or (word == "case" and depth):
        return depth + 1
    return depth - 1 if word == "end" and depth else depth


def _comment_end(text, place):
    depth, place = 1, place + 2
    for found in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return found.end()
    return len(text)


def _quote_end(text, place, quote, escapes):
    """The end of what is quoted from `place` on; a doubled quote is a part of it."""
    place += 1
    while place < len(text):
        if escapes and text[place] == "\\":
            place += 2
        elif text[place] != quote:
            place += 1
        elif text.startswith(quote * 2, place):
            place += 2
        else:
            return place + 1
    return len(text)
