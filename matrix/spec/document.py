"""A YAML file as plain Python data that still knows where everything stood.

The nodes are turned into data here, not by the YAML library, for three reasons: the style of a scalar is needed (an unquoted `off`
is refused, a quoted one is not), a float must keep its text (`1e-3` is passed on as it was written), and duplicate keys must be
reported together with everything else.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from matrix.spec.problems import Complaint, Problem, SpecError, Where, wrong_key

_MOST_BYTES = 4 << 20
_MOST_NODES = 20_000  # aliases of aliases can unfold without end
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # one that is no byte as Python's calls of the system give them
_TAG = "tag:yaml.org,2002:"
_WORDS = {"on", "off", "yes", "no"}  # true in YAML 1.1, words in YAML 1.2
_NUMBERS = re.compile(r"[-+]?(0\d+|\d+_[\d_]*|\d+(:[0-5]?\d)+)")  # octal, grouped, base 60 in YAML 1.1
_INT = re.compile(r"[-+]?\d{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,32}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)


class WrittenFloat(float):
    """A float that is shown and passed on as it was written in the file."""

    text: str

    def __new__(cls, value: float, text: str = "") -> WrittenFloat:
        self = super().__new__(cls, value)
        self.text = text or float.__repr__(self)
        return self

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class Document:
    """`data`: mappings with text keys, lists, str, int, float, bool.  `complaints`: what is wrong already at this level."""

    def __init__(self, root: Node | None, path: Path | None) -> None:
        self.path = path
        self.complaints: list[Complaint] = []
        self._root = root
        self._open: set[int] = set()
        self._count = 0
        self.data: Any = None if root is None else self._build(root, ())

    def position(self, where: Where, at_key: bool = False) -> tuple[int, int]:
        """Line and column, from 1, of the value (or of its key) at a path; of its nearest ancestor when the path does not exist.

        Path parts that the file leaves out are skipped: ("matrix", "bs", "values", 2) finds the third item of `bs: [4, 8, 16]`.
        """
        node = self._root
        for index, part in enumerate(where):
            if at_key and isinstance(part, str) and index == len(where) - 1:
                node = _key_node(node, part)
                break
            child = next((value for key, value in _children(node) if key == part), None)
            if child is None and not isinstance(node, SequenceNode):
                break
            node = child or node
        return (1, 1) if node is None else _place(node)

    def _complain(self, node: Node, where: Where, message: tuple[str, str]) -> None:
        self.complaints.append(Complaint(where, *message, place=_place(node)))

    def _build(self, node: Node, where: Where) -> Any:
        self._count += 1
        if id(node) in self._open or self._count > _MOST_NODES:
            self._complain(node, where, ("an alias that contains itself, or unfolds without end", "write the value out"))
            return None
        self._open.add(id(node))
        try:
            self._check_tag(node, where)
            if isinstance(node, ScalarNode):
                return self._scalar(node, where)
            if isinstance(node, MappingNode):
                return self._mapping(node, where)
            return [self._build(item, (*where, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.remove(id(node))

    def _mapping(self, node: MappingNode, where: Where) -> Any:
        if (text := _unquoted_placeholder(node)) is not None:
            self._complain(node, where, (f"unquoted {text} is a mapping to YAML", f'quote it: "{text}"'))
            return text
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._complain(key_node, where, ("a key must be a word, not a list or a mapping", "quote words that hold { } or [ ]"))
                continue
            key = self._text(key_node, where)
            if key in found:
                hint = f"it is already set in line {lines[key]}; remove one of them"
                self.complaints.append(wrong_key((*where, key), f"duplicate key '{key}'", hint, _place(key_node)))
                continue
            if _disputed(key_node):
                self.complaints.append(wrong_key((*where, key), *_dispute(key), _place(key_node)))
            lines[key] = key_node.start_mark.line + 1
            found[key] = self._build(value_node, (*where, key))
            if _is_empty(value_node):  # its own mark is where the next line begins
                self.complaints[-1] = dataclasses.replace(self.complaints[-1], place=_place(key_node))
        return found

    def _scalar(self, node: ScalarNode, where: Where) -> Any:
        text = self._text(node, where)
        if _disputed(node):
            self._complain(node, where, _dispute(text))
            return text
        return text if node.style is not None or node.tag == f"{_TAG}str" else _plain(text)

    def _text(self, node: ScalarNode, where: Where) -> str:
        """The text of a scalar.  Pairs of surrogates, as JSON writes letters beyond U+FFFF, become one letter."""
        text = str(node.value)
        if not _SURROGATE.search(text):
            return text
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if _NO_BYTE.search(text):
            hint = r"\udc80 to \udcff stand for the bytes 80 to ff; remove the others"
            self._complain(node, where, ("holds a character that is no Unicode", hint))
            return text.encode("ascii", "replace").decode("ascii")
        return text

    def _check_tag(self, node: Node, where: Where) -> None:
        tag = str(node.tag)
        if not tag.startswith(_TAG) or "python" in tag:
            self._complain(node, where, (f"unknown tag '{tag}'", "tags are not used here; remove it"))


def read_document(path: Path) -> Document:
    """Read a specification file.  Raises SpecError when it cannot be read or is not YAML."""
    try:
        data = _bytes_of(path)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError([Problem(None, None, "", "there is no such file", "name an existing specification")], path) from None
    except OSError as error:
        raise SpecError([Problem(None, None, "", f"cannot be read: {error.strerror or error}", "name a readable file")], path) from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError([Problem(line, None, "", "is not UTF-8 text", "save it as UTF-8")], path) from None
    return parse_document(text, path)


def _bytes_of(path: Path) -> bytes:
    """All of a regular file.  Raises OSError, SpecError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer does not hold us
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            hint = "save it to a file: it is read again, and its folder is where relative paths begin"
            raise SpecError([Problem(None, None, "", "cannot be read: it is not a regular file", hint)], path)
        data = b""
        while len(data) <= _MOST_BYTES and (more := os.read(descriptor, _MOST_BYTES)):
            data += more
    finally:
        os.close(descriptor)
    if len(data) > _MOST_BYTES:
        raise SpecError([Problem(None, None, "", f"is larger than {_MOST_BYTES >> 20} MiB", "a specification has some KiB")], path)
    return data


def parse_document(text: str, path: Path | None = None) -> Document:
    """The same for a text.  Raises SpecError for a syntax error, of which YAML can only tell the first."""
    try:
        root = YAML(typ="safe", pure=True).compose(text)
        document = Document(root, path)
    except MarkedYAMLError as error:
        raise SpecError([_syntax_problem(error)], path) from None
    except YAMLError as error:
        raise SpecError([Problem(None, None, "YAML", str(error).splitlines()[0], "remove control characters")], path) from None
    except RecursionError:
        raise SpecError([Problem(None, None, "YAML", "nested too deeply", "a specification has at most six levels")], path) from None
    if root is None:
        raise SpecError([Problem(1, 1, "", "is empty", "a specification needs at least `run` and `matrix`")], path)
    return document


def _syntax_problem(error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = " ".join(part for part in (error.problem, error.context and f"({error.context})") if part)
    hint = "indent with spaces" if "'\\t'" in what else "quote words that hold { } [ ] # % or a colon"
    return Problem(mark.line + 1 if mark else None, mark.column + 1 if mark else None, "YAML", what, hint)


def _children(node: Node | None) -> Iterator[tuple[str | int, Node]]:
    if isinstance(node, SequenceNode):
        yield from enumerate(node.value)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield str(key.value), value


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _key_node(node: Node | None, name: str | int) -> Node | None:
    return next((key for key, _ in node.value if str(key.value) == name), node) if isinstance(node, MappingNode) else node


def _plain(text: str) -> str | int | float | bool:
    """An unquoted scalar by the core schema of YAML 1.2; null never comes here."""
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
    if _FLOAT.fullmatch(text):
        return WrittenFloat(float(text.lower().replace(".inf", "inf").replace(".nan", "nan")), text)
    return text


def _disputed(node: ScalarNode) -> bool:
    text = str(node.value)
    return node.style is None and (text.lower() in {*_WORDS, "null", "~", ""} or _NUMBERS.fullmatch(text) is not None)


def _dispute(text: str) -> tuple[str, str]:
    if not text:
        return "has no value", 'write one ("" for the empty word), or remove the key'
    if text.lower() in _WORDS:
        return f"unquoted {text}: YAML readers disagree whether it is a word or true/false", f'write "{text}" for the word, or true/false'
    if text.lower() in ("null", "~"):
        return f"unquoted {text}: YAML readers disagree whether it is a word or nothing", f'write "{text}" for the word, or remove the key'
    return f"unquoted {text}: YAML readers disagree which number it is", f'write "{text}" for the word, or a plain decimal number'


def _unquoted_placeholder(node: MappingNode) -> str | None:
    """`{port}` without quotes: a flow mapping with one key that has no value."""
    if not node.flow_style or len(node.value) != 1:
        return None
    key, value = node.value[0]
    return f"{{{key.value}}}" if isinstance(key, ScalarNode) and _is_empty(value) else None


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style is None and not node.value
