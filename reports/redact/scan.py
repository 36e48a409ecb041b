"""The last look at a finished archive: does it still hold a secret?"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reports.redact.finder import BREAK, TERMINAL, View
from reports.redact.shapes import shaped
from reports.redact.vault import TOKEN, Vault


class Leak(NamedTuple):
    """A file of the archive and the kind of what it holds; never the secret itself."""

    member: str
    what: str


def leaks(archive: Path, vault: Vault) -> list[Leak]:
    """Every known secret and everything with the form of a key that is left, in contents and names."""
    found: list[Leak] = []
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            text = packed.read(info).decode(errors="surrogateescape")
            found += [Leak(info.filename, what) for what in sorted(set(_left(text, vault, binary="\0" in text[:4096])))]
            found += [Leak("a file name", what) for what in sorted(set(_left(info.filename, vault, binary=False)))]
    return found


def _left(text: str, vault: Vault, *, binary: bool) -> Iterator[str]:
    plain = View(text, TERMINAL).text if "\x1b" in text else text
    joined = View(plain, BREAK).text
    for needle, token in vault.needles.items():
        if needle in text or needle in plain or needle in joined:
            yield token
    if not binary:
        yield from (hit.kind for hit in shaped(plain) if not TOKEN.search(plain[hit.start : hit.end]))
