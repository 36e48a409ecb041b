"""What leaves through a report: each form of it without secrets and without who and where, as a package is."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from reports.folder import LARGEST_RECORD, RunFolder
from reports.redact import Redactor, names_of_here

OUR_WORDS = f"python3 {Path(sys.executable).name} matrix report.html report.md launch.sh spec.yaml reproduce.py"
TOLD_BY = ("plan.json", "spec.yaml", "verdict.json")  # files of a run folder whose structure gives secrets away


def handed_out(folders: Iterable[RunFolder], texts: dict[str, str]) -> dict[str, str]:
    """Return the texts without secrets; the same value has the same token in all of them."""
    redactor = _redactor_of(folders)
    plain = {name: _from_home(text).encode(errors="surrogatepass") for name, text in texts.items()}
    for name in sorted(plain, key=lambda name: not name.endswith(".md")):
        redactor.learn(name, lambda name=name: io.BytesIO(plain[name]))  # type: ignore[misc]
    return {name: _redacted(redactor, name, text) for name, text in plain.items()}


def _redacted(redactor: Redactor, name: str, data: bytes) -> str:
    if name.endswith(".xml"):
        return _redacted_xml(redactor, name, data.decode(errors="surrogatepass"))
    return b"".join(redactor.redact(name, lambda: io.BytesIO(data))).decode(errors="surrogatepass")


def _redacted_xml(redactor: Redactor, name: str, text: str) -> str:
    """Text by text: as XML writes a quotation mark, no name and value stand side by side."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        element.text = element.text and redactor.text(name, element.text)
        for key, value in element.attrib.items():
            element.set(key, redactor.text(name, value))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _redactor_of(folders: Iterable[RunFolder]) -> Redactor:
    redactor = Redactor(names_of_here(), os.environ)
    redactor.vault.spare(OUR_WORDS)
    for folder in folders:
        for name in TOLD_BY:
            path = folder.path / name
            if path.is_file() and path.stat().st_size < LARGEST_RECORD:
                redactor.learn(name, lambda path=path: path.open("rb"))  # type: ignore[misc]
        commands = json.dumps([{"argv": argv, "env": dict(env)} for argv, env in _commands(folder)])
        redactor.learn("commands.json", lambda commands=commands: io.BytesIO(commands.encode(errors="surrogatepass")))  # type: ignore[misc]
    return redactor


def _commands(folder: RunFolder) -> Iterator[tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]:
    """Yield each different command once; those of most attempts differ in the attempt's folder alone."""
    known = set()
    for found in folder.attempts:
        if found.attempt is None:
            continue
        argv = tuple(word.replace(found.id, "attempt") for word in found.attempt.argv)
        command = argv, tuple((name, value.replace(found.id, "attempt")) for name, value in found.attempt.env.items())
        if command not in known:
            known.add(command)
            yield command


def _from_home(text: str) -> str:
    """A shell understands `~` as well as the path that names the user."""
    home = str(Path.home())
    return text.replace(f"{home}/", "~/") if home.count("/") > 1 else text
