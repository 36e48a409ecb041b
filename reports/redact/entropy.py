"""Words that look random, and the technical ones among them that an expert needs: hashes, build-ids, symbols, paths, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reports.redact.hits import Hit

LONGEST_LOOK_BACK = 48
LONG_WORD = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{20,}={0,3}")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F-]+")
_PART = re.compile(r"[^/_=+-]+")
_PLAIN = re.compile(r"[A-Za-z]?[a-z]{3,}\d*|[A-Z]{4,}|\d{4,}")
_RUNS = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_CHECKSUM_BEFORE = re.compile(
    r"(?i)(?:sha-?(?:1|224|256|384|512)|md5|blake2\w?|crc\w*|digest|checksum|hash|integrity|build-?id|commit|rev(?:ision)?|base64,)"
    r"[\w\])\"' ]{0,12}[:=~\s\"'-]{0,4}\Z"
)
_SYMBOL = re.compile(r"_{1,2}Z[A-Z0-9]|_R[A-Z]|\?\w|PyInit_|__pyx_")  # mangled names of C++, Rust, MSVC and Cython
_NAMED_DIGEST = re.compile(r"sha(?:256|384|512)-[A-Za-z0-9+/]{40,}={0,2}")  # as a page or a lock file names a script
_LIBRARY_AFTER = re.compile(r"\.(?:so|dylib|dll|pyd|pyc|whl|a)\b")
_TAG = re.compile(r"(?:^|[_-])(?:cp3\d+|py[23]|manylinux|musllinux|macosx|linux|win|x86_64|aarch64|arm64|amd64|cu\d{2,3}|sse\d|avx)")


def random_words(text: str) -> Iterator[Hit]:
    """Long words without a name that look like keys."""
    for found in LONG_WORD.finditer(text):
        word = found[0]
        before, after = text[max(0, found.start() - LONGEST_LOOK_BACK) : found.start()], text[found.end() : found.end() + 8]
        if looks_random(word) and not is_technical(word, before, after):
            yield Hit(found.start(), found.end(), "high-entropy")


def looks_random(word: str) -> bool:
    """Whether letters and digits change as often as in a random word, and as no identifier or sentence does."""
    body = word.rstrip("=")
    if len(body) < 20 or _HEX.fullmatch(body):
        return False
    parts = _PART.findall(body)
    longest = max(parts, key=len, default="")
    if len(longest) < 16 and (len(body) < 32 or any(map(_PLAIN.fullmatch, parts))):
        return False  # a path, or a name with a short hash in it
    sample = longest if len(longest) >= 20 else body
    return not _HEX.fullmatch(sample) and _changes_often(sample) and not _is_of_words(body)


def _changes_often(sample: str) -> bool:
    """Changes of case and kind for each character: about 0.6 in base64, 0.4 in base36, 0.1 to 0.25 in names."""
    digits = sum(map(str.isdigit, sample))
    upper = sum(map(str.isupper, sample))
    lower = sum(map(str.islower, sample))
    rate = (len(_RUNS.findall(sample)) - 1) / len(sample)
    if digits == 0:
        return upper >= 6 and lower >= 6 and len(sample) >= 28 and rate >= 0.38
    if upper and lower:
        return digits >= 2 and rate >= 0.38
    return len(sample) >= 20 and 0.1 <= digits / len(sample) <= 0.75 and rate >= 0.27


def _is_of_words(body: str) -> bool:
    """`site-packages/torch/lib`, `IndexIVFScalarQuantizer`: half of it or more are runs of four lower-case letters or longer."""
    words = [run for run in re.findall(r"[A-Z]?[a-z]{3,}", body) if len(run) >= 4]
    return 2 * sum(map(len, words)) >= len(body)


def is_technical(word: str, before: str, after: str) -> bool:
    """Whether a random-looking word is one that diagnosis needs; `before` and `after` are the text around it."""
    if _SYMBOL.match(word) or _NAMED_DIGEST.fullmatch(word) or _TAG.search(word) or _LIBRARY_AFTER.match(after):
        return True
    return bool(_CHECKSUM_BEFORE.search(before))
