"""Harmless text that diagnosis lives on, taken from the machine at hand: maps, packages, build-ids, symbols, stacks, checksums."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import random
import subprocess
import sys
import sysconfig
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

LIBRARIES, SYMBOLS = 60, 1500
NAMED_LIBRARIES = 6  # whose symbols are read: a table of 50,000 takes seconds
_MAPS = "import numpy, pandas, sys; sys.stdout.write(open('/proc/self/maps').read())"
_STACKS = "import faulthandler, numpy, threading; faulthandler.dump_traceback_later(0.05, exit=True); threading.Event().wait()"


def corpus() -> dict[str, str]:
    """Text by what it is; what cannot be had here is left out."""
    everything = sorted(Path(sysconfig.get_paths()["purelib"]).glob("**/*.so*"), key=lambda path: (path.stat().st_size, path))
    libraries = everything[len(everything) // 2 :][:LIBRARIES]
    parts = {
        "maps": _output(_MAPS),
        "stacks": _output(_STACKS),
        "packages": "\n".join(f"{found.metadata['Name']}=={found.version}" for found in importlib.metadata.distributions()),
        "wheel records": "\n".join(_records()),
        "build-ids": "\n".join(f"{path.name} build-id {found}" for path in libraries for found in _build_ids(path)),
        "symbols": "\n".join(_symbols(libraries[:NAMED_LIBRARIES])),
        "checksums": "\n".join(f"{hashlib.sha256(path.name.encode()).hexdigest()}  {path.name}" for path in libraries),
        "configuration": "\n".join(f"{name}={found}" for name, found in sorted(sysconfig.get_config_vars().items())),
        "processor": _read("/proc/cpuinfo")[:4000],
        "limits": _read("/proc/self/limits"),
        "kernel log": _kernel_lines(),
        "training log": _training_log(),
    }
    return {name: text for name, text in parts.items() if text}


def _output(program: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    return done.stdout + done.stderr


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _records() -> list[str]:
    """Lines of wheels' RECORD files: paths with their checksums."""
    lines = []
    for found in importlib.metadata.distributions():
        lines += [f"{file} {file.hash.mode}={file.hash.value} {file.size}" for file in (found.files or [])[:20] if file.hash]
    return lines


def _build_ids(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            notes = [section for section in ELFFile(stream).iter_sections() if isinstance(section, NoteSection)]
            return [note["n_desc"] for section in notes for note in section.iter_notes() if note["n_type"] == "NT_GNU_BUILD_ID"]
    except (OSError, ELFError):
        return []


def _symbols(libraries: list[Path]) -> list[str]:
    """Exported names as a native stack shows them, mangled ones of C++ among them."""
    names: list[str] = []
    for path in libraries:
        try:
            with path.open("rb") as stream:
                tables = [section for section in ELFFile(stream).iter_sections() if isinstance(section, SymbolTableSection)]
                names += [symbol.name for table in tables for symbol in table.iter_symbols() if symbol.name]
        except (OSError, ELFError):
            continue
    chosen = random.Random(0).sample(sorted(set(names)), min(SYMBOLS, len(set(names))))
    return [f"#{number % 30:<2} 0x{0x7F0000000000 + 4099 * number:016x} in {name} ()" for number, name in enumerate(chosen)]


def _kernel_lines() -> str:
    chance = random.Random(1)
    lines = []
    for number in range(40):
        at = chance.randrange(1 << 46)
        where = f"segfault at {at:x} ip {at:016x} sp {at:016x} error 4 in fastmetric.so[{at:x}+9000]"
        lines.append(f"[{1000 + number}.{number:06}] python[{4000 + number}]: {where}")
        group = f"oom_memcg=/mx-{number}-{at:08x},task=python,pid={number},uid=1000"
        lines.append(f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,{group}")
    return "\n".join(lines)


def _training_log() -> str:
    chance = random.Random(2)
    lines = [
        "tokenizer: pad_token=<pad> eos_token=</s> max_tokens=512 TOKENIZERS_PARALLELISM=false",
        "primary_key=id sort_key=step cache_key=none",
    ]
    for step in range(400):
        rate = f"46.1it/s, loss={chance.random():.6f}, lr={chance.random() * 1e-4:.3e}"
        lines.append(f"epoch 3:  {step // 4}%|███▍      | {step}/400 [00:{step % 60:02}<01:02, {rate}]")
    commits = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(20)]
    lines += [f"commit {commit}" for commit in commits] + [
        f"checkpoint saved to runs/{commit[:12]}/step_{number}.pt" for number, commit in enumerate(commits)
    ]
    lines += [
        f"libgomp-{commit[:8]}.so.1.0.0 numpy-2.4.{number}-cp311-cp311-manylinux_2_27_x86_64.whl" for number, commit in enumerate(commits)
    ]
    lines += [f"nvidia-cublas-cu12==12.{number}.3.1 torch==2.13.0+cu126 driver 550.54.{number} CUDA Version: 12.4" for number in range(20)]
    return "\n".join(lines)
