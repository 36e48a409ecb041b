"""One package's redactor: first it learns from every file, then it writes each without secrets.

Two passes, because a password that only one file names stands bare in others.  Files pass in blocks, so that a log of any
size takes little memory.
"""

from __future__ import annotations

import bisect
import codecs
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from reports.redact import structured
from reports.redact.finder import BREAK, TERMINAL, View, find
from reports.redact.hits import Hit, merged, settled
from reports.redact.identity import Identities, Known
from reports.redact.images import without_metadata
from reports.redact.named import is_secret, strength_of
from reports.redact.shapes import KINDS
from reports.redact.source import SUFFIXES, Part, is_source, names_in, parts_of, structure_of, within
from reports.redact.structured import parses
from reports.redact.vault import IDENTITIES, Vault, kind_of, places_of

BLOCK_CHARS = 1 << 20
HELD_BACK = 1 << 14  # characters at the end of a block that wait for the next one: what is cut there is found whole
LONGEST_KEY = 1 << 16
LARGEST_DOCUMENT = 16 << 20  # bytes of JSON or YAML that are parsed; the text of a larger one is still searched
SHORTEST_IN_REPORT = 4  # our own texts hold so few ordinary words that short passwords can be taken out wherever they stand
DOCUMENTS = (".json", ".jsonl", ".yaml", ".yml")
IMAGES = (".png", ".jpg", ".jpeg", ".svg")
WRITTEN_BY_US = (".md", ".html", "report.json", "report.csv", "report.xml", "compare.json")
JSON = (".json", ".jsonl", ".ipynb")
YAML = (".yaml", ".yml")
AS_WRITTEN = (*SUFFIXES, *JSON, ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh")  # lines end where their author ended them
_JSON_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_JSON_SIGNS = re.compile(r'["\[\]{},\s]|^(?:true|false|null)$')
_PAGE_CODE = re.compile(r"<script>.*?</script>|<style>.*?</style>", re.DOTALL)  # of our own templates: the page names a hash of its script
_NUMBER = re.compile(r"-?\d[\d.eE+-]*")
_END_OF_LINE = re.compile(r"(?<![A-Za-z0-9+/=_-])\n|\n(?![A-Za-z0-9+/=_-])")
_CUTS = re.compile(f"{TERMINAL.pattern}|{BREAK.pattern}")
_OUR_NUMBERS = bytes(range(ord("0"), ord("9") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + b"_.,-\n"
Source = Callable[[], BinaryIO]


class Redactor:
    """Call `learn` with every file, then `redact` with every file."""

    def __init__(self, known: Known, environment: Mapping[str, str] | None = None) -> None:
        self.vault = Vault()
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # file -> kind -> how many
        self.changed: set[str] = set()  # sources in whose code, beside their texts, something was redacted
        self._identities = Identities(known)
        self._found: defaultdict[str, list[list[Hit]]] = defaultdict(list)  # file -> what its blocks hold, so that none is searched twice
        self._quoted: defaultdict[str, set[str]] = defaultdict(set)  # file -> short secrets that its structure gave away
        for name, value in sorted((environment or {}).items()):
            if is_secret(value, strength_of(name), name):
                self.vault.token("named-secret", value)

    def learn(self, name: str, source: Source) -> None:
        """Take note of every secret and name in a file."""
        with source() as stream:
            if _is_ours_and_plain(name, stream):
                return
            for text in self._blocks(name, stream):
                hits = self._find(name, text)
                self._found[name].append(hits)
                for hit in hits:
                    self._remember(hit.kind, _value(text, hit))
            if not name.endswith(DOCUMENTS):
                return
            stream.seek(0)
            document = stream.read(LARGEST_DOCUMENT + 1)
            if len(document) <= LARGEST_DOCUMENT:
                self._learn_structure(name, document.decode(errors="surrogateescape"))

    def spare_names(self, name: str, source: Source) -> None:
        """Take note of the names that a Python source uses, before `learn`: they are redacted nowhere."""
        with source() as stream:
            text = stream.read(LARGEST_DOCUMENT).decode(errors="surrogateescape")
        if is_source(name, text):
            names = {*names_in(text), *re.split(r"[/.]", name)}
            self._identities.spare(names)
            self.vault.spare("", names)

    def _blocks(self, name: str, stream: BinaryIO) -> Iterator[str]:
        """A source and a page are looked at whole, for a text or a script in them may be of many lines."""
        if name.endswith((*SUFFIXES, ".html")) or stream.read(2) == b"#!":
            stream.seek(0)
            yield stream.read().decode(errors="surrogateescape")
            return
        stream.seek(0)
        yield from blocks(stream)

    def _find(self, name: str, text: str) -> list[Hit]:
        """Places to redact; in a source those within its texts and comments."""
        parts = parts_of(text) if is_source(name, text) else None
        hits = find(text, self._identities, may_be_wrapped=not name.endswith(AS_WRITTEN), is_source=parts is not None)
        if parts is None:
            return _outside_page_code(text, hits) if name.endswith(".html") else hits
        keys = [hit for hit in _outside(hits, parts) if hit.kind in KINDS]
        return sorted([*(hit for hit, _ in within(text, hits, parts)), *keys])

    def _learn_structure(self, name: str, text: str) -> None:
        for kind, value in structured.secrets_of(name, text, self._identities):
            self._remember(kind, value)
            if kind not in IDENTITIES and not self.vault.is_unmistakable(value):
                self._quoted[name].add(value)

    def _remember(self, kind: str, value: str) -> None:
        self.vault.token(kind, value)
        if kind == "url-password" and (password := value.partition(":")[2]):  # the program may print it without the address
            self.vault.token("password", password)
        if kind in IDENTITIES:
            self._identities.learn(kind, value)

    def redact(self, name: str, source: Source) -> Iterator[bytes]:
        """The file without secrets, in parts."""
        with source() as stream:
            if name.endswith(IMAGES):
                yield from self._image(name, stream.read())
            elif _is_ours_and_plain(name, stream):
                yield stream.read()
            else:
                for text, found in itertools.zip_longest(self._blocks(name, stream), self._found.pop(name, ())):
                    yield self.text(name, text or "", found).encode(errors="surrogateescape")

    def text(self, name: str, text: str, found: list[Hit] | None = None) -> str:
        """One text (a block of a file, or a file's name) without secrets; `found`: what was found in it before."""
        own = self._find(name, text) if found is None else found
        secrets = settled([*self._known(text), *self._short(name, text), *(hit for hit in own if hit.kind not in IDENTITIES)])
        hits = merged(secrets, [*(hit for hit in own if hit.kind in IDENTITIES), *self._identities.words(text)])
        if is_source(name, text) and (literals := parts_of(text)) is not None:
            return self._in_source(name, text, hits, literals)
        if name.endswith(JSON):
            return self._in_json(name, text, hits)
        if name.endswith(".html"):
            hits = _outside_page_code(text, hits)
        after = self._replaced(name, text, hits)
        if hits and not parses(name, after) and parses(name, text):
            bare = [text[hit.start - 1 : hit.start] not in "\"'`" for hit in hits]
            after = self._replaced(name, text, hits, bare, count=False)
        return after

    def _replaced(self, name: str, text: str, hits: list[Hit], quoted: Iterable[bool] = (), *, count: bool = True) -> str:
        """The text with tokens; quoted: for each hit, whether its token gets quotes of its own."""
        parts, position = [], 0
        for hit, in_quotes in itertools.zip_longest(hits, quoted):
            token = self._token(text, hit)
            parts += [text[position : hit.start], f'"{token}"' if in_quotes else token]
            position = hit.end
            self.counts[name][hit.kind] += count
        return "".join([*parts, text[position:]])

    def _token(self, text: str, hit: Hit) -> str:
        return self.vault.needles.get(text[hit.start : hit.end]) or self.vault.token(hit.kind, _value(text, hit))

    def _in_source(self, name: str, text: str, hits: list[Hit], literals: list[Part]) -> str:
        """A source keeps its structure: where a token in a text would change it, the token takes the place of the whole text."""
        before = structure_of(text.encode(errors="surrogateescape"))
        if before is None:
            return self._replaced(name, text, hits)
        pairs = [(hit, part) for hit, part in within(text, hits, literals) if hit.start < hit.end]
        after = self._in_literals(name, text, [*pairs, *self._keys_in_code(name, hits, literals)])
        if pairs and name not in self.changed and before != structure_of(after.encode(errors="surrogateescape")):
            whole = {part: hit._replace(start=part.start, end=part.end) for hit, part in pairs}
            after = self._in_literals(name, text, [(hit, part) for part, hit in whole.items()])
        return after

    def _keys_in_code(self, name: str, hits: list[Hit], literals: list[Part]) -> list[tuple[Hit, None]]:
        """A name of the code that has the form of a key goes too, although the code is another one then."""
        untouched = set(_outside(hits, literals))
        outside = [hit for hit in hits if hit.kind in KINDS and hit in untouched]
        self.changed |= {name} if outside else set()
        return [(hit, None) for hit in outside]

    def _in_literals(self, name: str, text: str, pairs: Iterable[tuple[Hit, Part | None]]) -> str:
        parts, position = [], 0
        for hit, part in sorted(pairs, key=lambda pair: pair[0]):
            token = self._token(text, hit)
            if part is None:
                token = token.replace("-", "_")
            elif part.is_bytes:
                token = token.encode("ascii", "ignore").decode("ascii")
            parts += [text[position : hit.start], token]
            position = hit.end
            self.counts[name][hit.kind] += 1
        return "".join([*parts, text[position:]])

    def _in_json(self, name: str, text: str, hits: list[Hit]) -> str:
        """Within the texts of JSON; a number that is a secret becomes a text."""
        if not hits:
            return text
        texts = [Part(found.start() + 1, found.end() - 1) for found in _JSON_TEXT.finditer(text)]
        inside = [hit for hit, _ in within(text, hits, texts) if hit.start < hit.end]
        bare = [hit for hit in _outside(hits, texts) if not _JSON_SIGNS.search(text, hit.start, hit.end)]
        pairs = sorted([*((hit, False) for hit in inside), *((hit, bool(_NUMBER.fullmatch(text, hit.start, hit.end))) for hit in bare)])
        return self._replaced(name, text, [hit for hit, _ in pairs], [quoted for _, quoted in pairs])

    def mask(self, name: str, data: bytes) -> bytes:
        """A binary file with as many X for each secret as it has bytes: what points into the file stays right."""
        for needle in self.vault.needles:
            found = needle.encode(errors="surrogateescape")
            if count := data.count(found):
                self.counts[name]["in-binary"] += count
                data = data.replace(found, b"X" * len(found))
        return data

    def _image(self, name: str, data: bytes) -> Iterator[bytes]:
        plain = without_metadata(data)
        self.counts[name]["image-metadata"] += plain != data
        if name.endswith(".svg"):
            yield self.text(name, plain.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        else:
            yield self.mask(name, plain)

    def _known(self, text: str) -> Iterator[Hit]:
        """Secrets that were learnt elsewhere, also where a line end or a terminal code cuts them."""
        needles = self.vault.needles
        if not needles or not ("\x1b" in text or self.vault.may_be_in(text.encode(errors="surrogateescape"))):
            return
        for start, needle in places_of(needles, text):
            yield Hit(start, start + len(needle), kind_of(needles[needle]))
        view = View(text, _CUTS)
        if len(view.text) != len(text):
            for start, needle in places_of(needles, view.text):
                if view.is_cut(hit := Hit(start, start + len(needle), kind_of(needles[needle]))):
                    yield view.back(hit)

    def _short(self, name: str, text: str) -> Iterator[Hit]:
        """Short secrets: as whole strings in the document that named them, as whole words in our own texts."""
        before, after = ("(?<=[\\s,\\[\"'])", "(?=[\\s,\\]}\"']|$)") if name.endswith(YAML) else ('(?<=")', '(?=")')
        for value in sorted(self._quoted.get(name, ())):
            whole = re.compile(f"{before}{re.escape(value)}{after}")
            yield from (Hit(*found.span(), "named-secret") for found in whole.finditer(text))
        if name.endswith(WRITTEN_BY_US):
            for value in self._named_short():
                word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
                yield from (Hit(*found.span(), "named-secret") for found in word.finditer(text))

    def _named_short(self) -> list[str]:
        named = {value for values in self._quoted.values() for value in values}
        return sorted(value for value in named if len(value) >= SHORTEST_IN_REPORT and not self.vault.is_ordinary(value))


def _outside(hits: list[Hit], parts: list[Part]) -> Iterator[Hit]:
    """Yield the hits that touch none of the parts; both are by position."""
    starts = [part.start for part in parts]
    for hit in hits:
        before = bisect.bisect_left(starts, hit.end)
        if not before or parts[before - 1].end <= hit.start:
            yield hit


def _outside_page_code(text: str, hits: list[Hit]) -> list[Hit]:
    return list(_outside(hits, [Part(*found.span()) for found in _PAGE_CODE.finditer(text)]))


def blocks(stream: BinaryIO) -> Iterator[str]:
    """The text of a file in blocks that end with a line where that is possible, and never inside a private key."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    rest = ""
    while data := stream.read(BLOCK_CHARS):
        text = rest + decoder.decode(data)
        cut = _cut(text)
        if cut:
            yield text[:cut]
        rest = text[cut:]
    yield rest + decoder.decode(b"", final=True)


def _cut(text: str) -> int:
    """Where a block may end; 0: more is needed first."""
    last = len(text) - HELD_BACK
    if last <= 0:
        return 0
    ends = [found.end() for found in _END_OF_LINE.finditer(text, max(0, last - HELD_BACK), last)]
    cut = ends[-1] if ends else text.rfind(" ", max(0, last - HELD_BACK), last) + 1 or last
    begun = text.rfind("-----BEGIN ", max(0, cut - LONGEST_KEY), cut)
    return begun if begun > 0 and text.find("-----END ", begun, cut) < 0 else cut


def _value(text: str, hit: Hit) -> str:
    """Without the line ends and terminal codes that cut it; a private key keeps its lines."""
    value = text[hit.start : hit.end]
    return value if hit.kind == "private-key" else _CUTS.sub("", value)


def _is_ours_and_plain(name: str, stream: BinaryIO) -> bool:
    """A memory curve that holds nothing but small letters, digits and commas; 100 MB of them are a usual run."""
    if not name.endswith("memory.csv"):
        return False
    plain = all(not data.translate(None, _OUR_NUMBERS) for data in iter(lambda: stream.read(BLOCK_CHARS), b""))
    stream.seek(0)
    return plain
