"""Which wheel or distribution package ships a file."""

from __future__ import annotations

import functools
import os
from pathlib import Path

DPKG = Path("/var/lib/dpkg/info")


@functools.lru_cache(maxsize=4096)
def owner(path: str) -> str | None:
    """`torch 2.13.0` or `libomp5-14`; None when nobody's list names the file."""
    return _wheel(Path(path)) or (_debian(path) if path.startswith(("/usr/", "/lib")) else None)


def _wheel(path: Path) -> str | None:
    """By the RECORD files of the installation that the file is in; wheels also put libraries into <prefix>/lib."""
    for folder in path.parents:
        places = [folder] if folder.name in ("site-packages", "dist-packages") else folder.glob("lib/python3*/*-packages")
        for place in places:
            inside = os.path.relpath(path, place)
            for name, record in _records(str(place)):
                if f"\n{inside}," in record:
                    return name
    return None


@functools.lru_cache(maxsize=16)
def _records(place: str) -> list[tuple[str, str]]:
    """(name and version, text of RECORD) of every wheel in a site-packages folder."""
    found = []
    for record in Path(place).glob("*.dist-info/RECORD"):
        name, _, version = record.parent.name.removesuffix(".dist-info").rpartition("-")
        found.append((f"{name} {version}", "\n" + record.read_text(errors="replace")))
    return found


def _debian(path: str) -> str | None:
    """Old packages list /lib/…, where /lib is a link to /usr/lib today."""
    wanted = {f"\n{path}\n", f"\n{path.removeprefix('/usr')}\n"}
    for files in DPKG.glob("*.list"):
        text = "\n" + files.read_text(errors="replace")
        if any(line in text for line in wanted):
            return files.stem.partition(":")[0]
    return None
