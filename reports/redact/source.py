"""Python source: where its texts and comments are, the names that it uses, and its structure without its texts.

Outside texts and comments nothing of a source is redacted: `Path.home()` and `self.private` look like names of hosts.
"""

from __future__ import annotations

import ast
import hashlib
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reports.redact.hits import Hit

SUFFIXES = (".py", ".pyi")
UNREADABLE = (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError, IndexError)
_SHEBANG = re.compile(r"#!\S*(?:/|\s)(?:env\s+)?python[\d.]*\s")
_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|[0-7]{1,3}|\r?\n|.)", re.DOTALL)
_INNER_TEXT = re.compile(r"'[^'\\{}\n]*'|\"[^\"\\{}\n]*\"")
_NO_CHARACTER = re.compile("[\ud800-\udfff]")  # bytes that are no UTF-8
_FSTRING_MIDDLE = {getattr(tokenize, name) for name in ("FSTRING_MIDDLE", "TSTRING_MIDDLE") if hasattr(tokenize, name)}


class Part(NamedTuple):
    """Characters `start` to `end` of a text or comment, without its quotes."""

    start: int
    end: int
    is_bytes: bool = False
    has_escapes: bool = True


def is_source(name: str, text: str) -> bool:
    """Return True for Python source, by its name or its first line."""
    return name.endswith(SUFFIXES) or ("." not in name.rpartition("/")[2] and bool(_SHEBANG.match(text)))


def parts_of(text: str) -> list[Part] | None:
    """Return the texts and comments of a source by position; None when it cannot be tokenised."""
    bom = text.startswith("\ufeff")
    plain = _NO_CHARACTER.sub("?", text[bom:])
    starts = [int(bom), *(found.end() + bom for found in re.finditer("\n", plain))]
    try:
        return list(_parts(plain, starts, text))
    except UNREADABLE:
        return None


def _parts(plain: str, starts: list[int], text: str) -> Iterator[Part]:
    kinds = {tokenize.COMMENT, tokenize.STRING, *_FSTRING_MIDDLE}
    for token in tokenize.generate_tokens(io.StringIO(plain).readline):
        if token.type not in kinds:
            continue
        start = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.COMMENT:
            yield Part(start + 1, end, has_escapes=False)
        elif token.type in _FSTRING_MIDDLE:
            doubled = re.sub("[{}]", r"\g<0>\g<0>", token.string)  # the token has one brace where the source has two
            yield Part(start, start + len(doubled) if text.startswith(doubled, start) else end)
        elif opening := _OPENING.match(text, start):
            prefix, inner = opening[1].lower(), (opening.end(), end - len(opening[2]))
            if "f" in prefix:
                yield from _outside_braces(text, *inner)
            else:
                yield Part(*inner, is_bytes="b" in prefix)


def _outside_braces(text: str, start: int, end: int) -> Iterator[Part]:
    """Yield the fixed text of an f-string that is one token, as it is before Python 3.12, and plain texts within its braces."""
    position = begun = start
    while position < end:
        if text[position] == "{" and not text.startswith("{{", position):
            yield Part(begun, position)
            begun = _end_of_braces(text, position, end)
            if text.find("{", position + 1, begun) < 0:  # or quotes may be those of an f-string within this one
                yield from (Part(found.start() + 1, found.end() - 1) for found in _INNER_TEXT.finditer(text, position, begun))
            position = begun
        else:
            position += 2 if text.startswith(("{{", "\\N"), position) else 1
            if text.startswith("{", position) and text.startswith("\\N", position - 2):
                position = text.find("}", position, end) + 1 or end
    yield Part(begun, end)


def _end_of_braces(text: str, position: int, end: int) -> int:
    depth = 0
    for at in range(position, end):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    return end


def within(text: str, hits: Iterable[Hit], parts: list[Part]) -> Iterator[tuple[Hit, Part]]:
    """Yield what of the hits lies within the parts, whole escapes at a time.  Both are by position and apart from each other."""
    left = iter(hits)
    hit = next(left, None)
    for part in parts:
        while hit and hit.end <= part.start:
            hit = next(left, None)
        while hit and hit.start < part.end:
            start, end = max(hit.start, part.start), min(hit.end, part.end)
            yield hit._replace(start=_whole(text, part, start, False), end=_whole(text, part, end, True)), part
            if hit.end > part.end:
                break
            hit = next(left, None)


def _whole(text: str, part: Part, place: int, at_end: bool) -> int:
    """Return the place, moved out of an escape that it would cut in two."""
    near = max(part.start, place - 64)
    while near > part.start and text[near - 1] == "\\":
        near -= 1
    for found in _ESCAPE.finditer(text, near, part.end) if part.has_escapes else ():
        if found.start() < place < found.end():
            return found.end() if at_end else found.start()
        if found.start() >= place:
            break
    return place


def names_in(text: str) -> set[str]:
    """Return the names that a source uses; what cannot be tokenised ends them."""
    found: set[str] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(_NO_CHARACTER.sub("?", text.lstrip("\ufeff"))).readline):
            if token.type == tokenize.NAME:
                found.add(token.string)
    except UNREADABLE:
        pass
    return found


# ------------------------------------------------------------------ structure
def structure_of(source: bytes) -> str | None:
    """Return the sha256 of a source's syntax tree without its texts, equal in all versions of Python; None when it is no source."""
    try:
        tree = ast.parse(source)
        digest = hashlib.sha256()
        for word in _words_of(tree):
            digest.update(word.encode(errors="surrogatepass") + b"\n")
        return digest.hexdigest()
    except UNREADABLE:
        return None


def _words_of(tree: ast.AST) -> Iterator[str]:
    """Yield the tree from its root; what is empty is left out, for later versions of Python have more fields."""
    left: list[object] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Constant):
            yield "a text" if isinstance(node.value, (str, bytes)) else repr(node.value)
        elif isinstance(node, ast.AST):
            yield type(node).__name__
            fields = [(name, _told(node, value)) for name, value in ast.iter_fields(node)]
            kept = [(name, value) for name, value in fields if value not in (None, [])]
            left += reversed([*itertools.chain.from_iterable(kept), "end"])
        elif isinstance(node, list):
            left += reversed([*node, "end of list"])
        else:
            yield str(node)


def _told(node: ast.AST, value: object) -> object:
    """Return a field without the fixed texts of an f-string and without how a text was written (`kind`)."""
    if isinstance(node, ast.JoinedStr) and isinstance(value, list):
        return [part for part in value if not isinstance(part, ast.Constant)]
    return value
