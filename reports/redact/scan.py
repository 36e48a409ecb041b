"""The last look at a finished archive: does it still hold a secret?"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reports.redact.finder import BREAK, TERMINAL, View
from reports.redact.glance import may_hold_a_form
from reports.redact.shapes import shaped
from reports.redact.vault import TOKEN, Vault, places_of


class Leak(NamedTuple):
    """A file of the archive and the kind of what it holds; never the secret itself."""

    member: str
    what: str


def leaks(archive: Path, vault: Vault) -> list[Leak]:
    """Every known secret and everything with the form of a key that is left, in contents and names."""
    found: list[Leak] = []
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            data = packed.read(info)
            found += [Leak(info.filename, what) for what in sorted(set(_left(data, vault, binary=b"\0" in data[:4096])))]
            found += [Leak("a file name", what) for what in sorted(set(_left(os.fsencode(info.filename), vault, binary=False)))]
    return found


def _left(data: bytes, vault: Vault, *, binary: bool) -> Iterator[str]:
    is_coloured = b"\x1b" in data
    is_shaped = not binary and (is_coloured or may_hold_a_form(data))
    if not (is_coloured or is_shaped or vault.may_be_in(data)):
        return
    text = data.decode(errors="surrogateescape")
    plain = View(text, TERMINAL).text if is_coloured else text
    if is_coloured or vault.may_be_in(data):
        joined = View(plain, BREAK).text
        for form in dict.fromkeys((text, plain, joined)):
            yield from (vault.needles[needle] for _, needle in places_of(vault.needles, form))
    if is_shaped:
        yield from (hit.kind for hit in shaped(plain) if not TOKEN.search(plain[hit.start : hit.end]))
