"""Which kind of remains a file is: by its content, never by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from matrix.explain import crashes, kubernetes, output, slurm, statuses
from matrix.explain.part import Part, joined
from matrix.explain.sources import Source, Unreadable

LOOKED_FOR = (
    "a core (ELF), a macOS crash or jetsam report (.ips), faulthandler's text, a kernel log (dmesg, journalctl -k), a table of sacct or "
    "scontrol show job, kubectl get pod -o json/yaml or describe, an exit status alone, and in the output of a job: step numbers and "
    "progress bars, tracebacks, messages about dead workers, tables of torchrun, words of shells, glibc, OpenMP, CUDA, Ray and the kernel"
)
MAGIC = {
    b"\x7fELF": "an ELF file, but no core: a program or a library",
    b"\x1f\x8b": "compressed; give it as zcat FILE | python -m matrix explain -",
    b"\x28\xb5\x2f\xfd": "compressed; give it as zstdcat FILE | python -m matrix explain -",
    b"\xfd7zXZ": "compressed; give it as xzcat FILE | python -m matrix explain -",
    b"BZh": "compressed; give it as bzcat FILE | python -m matrix explain -",
    b"\xff\xfe": "text in UTF-16; give it as iconv -f UTF-16 -t UTF-8 FILE | python -m matrix explain -",
    b"\xfe\xff": "text in UTF-16; give it as iconv -f UTF-16 -t UTF-8 FILE | python -m matrix explain -",
}


def read_all(sources: Sequence[Source]) -> Part:
    """Raises Unreadable when one of them is of no kind that is known."""
    found, wrong = [], []
    for source in sources:
        try:
            found.append(read(source))
        except Unreadable as problem:
            wrong.append(str(problem))
    if wrong:
        raise Unreadable("\n".join(wrong))
    return joined(found)


def read(source: Source) -> Part:
    """Raises Unreadable."""
    if crashes.is_core(source.head):
        return crashes.read_core_file(source)
    if not source.tail:
        kind = next((words for magic, words in MAGIC.items() if source.head.startswith(magic)), "binary, and no core")
        raise Unreadable(f"{source.name}: {kind}; looked for {LOOKED_FOR}")
    if source.whole and (status := statuses.alone(source.tail)):
        with contextlib.suppress(statuses.NoStatus):
            return statuses.given(status, source.name)
    part = crashes.read_report(source) or kubernetes.read(source) or slurm.read(source) or _text(source)
    if not part.kinds and not part.kernel:
        raise Unreadable(f"{source.name}: nothing in its {source.lines} lines is known here; looked for {LOOKED_FOR}")
    return part


def _text(source: Source) -> Part:
    """Output, a kernel log, or both in one."""
    only_kernel = Part(kernel=source.kernel)
    if (source.kernel and len(source.kernel) >= source.lines / 2) or _is_kernel_log(source):
        return joined([Part(kinds=frozenset(("kernel log",))), only_kernel])
    return joined([output.read(source), *slurm.lines(source), only_kernel])


def _is_kernel_log(source: Source) -> bool:
    """Most of its first lines begin as the kernel's do."""
    lines = source.head.decode("utf-8", "replace").splitlines()[:50]
    begins = sum((line.startswith(("[", "<")) and "] " in line[:32]) or " kernel: " in line[:80] for line in lines)
    return bool(source.kernel) and begins > len(lines) / 2
