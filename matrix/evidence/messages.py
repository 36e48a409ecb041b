"""Lines of a program's output whose words have one meaning, whoever prints them: libc's, the loader's, frameworks' own.

A line says what somebody noticed, not what caused it: the kinds are names of words, not of causes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Literal

from matrix.evidence.digits import whole
from matrix.evidence.progress import ANSI, CONTROL
from matrix.records import Message, MessageKind

LINE_CHARS = 400
LONGEST_CHARS = 2000  # longer lines are data
SEARCHED_CHARS = 1 << 20  # of the end of each stream

# In lower case; "a…b" is a and b on one line.  A line is of the first kind that has a word in it.
WORDS: dict[MessageKind, tuple[str, ...]] = {
    "openmp conflict": ("omp: error #15", "already initialized"),
    "numpy abi": (
        "_array_api not found", "numpy.dtype size changed", "numpy.ndarray size changed", "numpy.ufunc size changed",
        "compiled using numpy 1.x", "module compiled against api version", "module compiled against abi version",
        "module was compiled against numpy",
    ),
    "missing symbol": ("undefined symbol: ", "symbol lookup error", "not found (required by", "symbol not found"),
    "missing library": ("cannot open shared object file", "library not loaded: ", "dll load failed", "in static tls block"),
    "bad instruction": ("illegal instruction", "cpu features that are not available", "was compiled to use instructions"),
    "heap damaged": (
        "free(): double free", "free(): invalid", "free(): unaligned", "free(): corrupted", "free(): too many chunks",
        "double free or corruption", "malloc(): ", "malloc_consolidate(): ", "tcache_thread_shutdown(): ", "invalid fastbin entry",
        "unaligned fastbin chunk", "malloc assertion failure", "malloc.c:…assertion", "break adjusted to free malloc space",
        "malloc_check_get_size: ", "block freed twice", "memory clobbered", "top chunk is corrupt", "attempt to free invalid pointer",
        "malloc: *** error", "corrupted size vs. prev_size", "corrupted double-linked list", "realloc(): invalid",
        "munmap_chunk(): invalid", "mremap_chunk(): invalid", "heap-buffer-overflow", "heap-use-after-free",
        "pointer being freed was not allocated", "debug memory block at address",
    ),
    "stack smashed": ("*** stack smashing detected", "*** buffer overflow detected"),
    "stack overflow": ("stack overflow", "stack-overflow", "cannot recover from the recursive error"),
    "recursion": ("recursionerror", "maximum recursion depth exceeded"),
    "cuda out of memory": (
        "cuda out of memory", "cuda error: out of memory", "cudaerrormemoryallocation", "cublas_status_alloc_failed",
        "mps backend out of memory", "torch.outofmemoryerror", "cuda.outofmemoryerror",
    ),
    "cuda assert": ("device-side assert", "], thread: ["),
    "cuda error": ("cuda error: ", "cudnn_status_", "cudnn error", "cublas_status_", "nccl error", "ncclsystemerror", "ncclinternalerror"),
    "worker died": (
        "dataloader worker (pid", "unexpectedly terminated", "terminated abruptly", "terminated unexpectedly", "terminated with signal",
        "terminated with exit code", "failed (exitcode: ", "brokenprocesspool", "terminatedworkererror",
    ),
    "corrupt input": (
        "badzipfile", "not a zip file", "unpicklingerror", "pickle data was truncated", "invalid load key", "eoferror",
        "while decompressing", "lzmaerror", "compressed file ended", "not a gzipped file", "crc check failed", "bad crc",
        "checksum…mismatch", "checksum…not match", "checksum…fail", "checksum…differ", "bad checksum", "wrong checksum", "invalid checksum",
        "digest…not match", "digest…mismatch", "is corrupt", "file corrupt", "corrupt file", "corrupted file", "data corrupt",
        "corrupt data", "corrupted data", "corrupt record", "corrupted record", "truncated file", "file is truncated",
        "cannot reshape array", "no data left in file", "failed to interpret file",
        "magic string is not correct", "bad magic number", "jsondecodeerror", "unicodedecodeerror", "cannot identify image file",
        "image file is truncated", "unexpected end of file",
        "unexpected end of data", "pytorchstreamreader failed", "arrowinvalid", "mmap length is greater than file size",
        "could not convert string to", "invalid literal for int()", "requires a buffer of", "buffer is smaller than requested size",
        "buffer size must be a multiple of element size", "incorrect padding", "not well-formed", "error tokenizing data",
        "database disk image is malformed", "file is not a database", "mdb_corrupted", "datalosserror", "error parsing message",
        "broken data stream", "file signature not found", "does not start with riff", "magic bytes not found",
        "error while deserializing header", "tarfile.readerror",
    ),
    "no space": (
        "no space left on device", "disk quota exceeded", "enospc", "insufficient shared memory", "out of shared memory", "disk is full",
        "disk full", "not enough space on the disk", "not enough disk space",
    ),
    "bus error": ("bus error",),
    "too many files": ("too many open files", "received 0 items of ancdata", "emfile", "too many references: cannot splice"),
    "no more processes": (
        "can't start new thread", "resource temporarily unavailable", "pthread_create failed", "thread creation failed",
        "fork: retry", "cannot fork",
    ),
    "out of memory": (
        "memoryerror", "std::bad_alloc", "cannot allocate memory", "can't allocate memory", "not enough memory", "out of memory",
        "unable to allocate ", "failed to map segment from shared object", "oom_kill event", "oom-kill event",
    ),
    "cpu time": ("cpu time limit exceeded", "cputime limit exceeded", "due to time limit"),
    "file too large": ("file size limit exceeded", "file too large"),
    "no more ports": ("cannot assign requested address", "eaddrnotavail"),
    "broken pipe": ("broken pipe", "brokenpipeerror"),
    "terminated": ("sigterm", "cancelled at", "due to preemption", "keyboardinterrupt"),
    "c++ exception": ("terminate called ", "libc++abi: terminating"),
    "assertion": ("' failed.", "assertion failed", "check failed: "),
    "fatal python error": ("fatal python error: ",),
    "openmp warning": ("omp: warning #", "omp: error #", "libgomp: "),  # after the reasons: a line may go on with the system's own words
    "bad number": (
        "loss is nan", "loss is inf", "nan loss", "is nan", "contains nan", "contains inf", "nan detected", "found nan", "nan or inf",
        "non-finite", "nonfinite", "overflow encountered in", "invalid value encountered in", "divide by zero encountered in",
    ),
}  # fmt: skip
Stream = Literal["stdout", "stderr"]
PLACE = re.compile(r"\s*File \".*\", line \d+")
PID = re.compile(r"\bpid(?:\(s\))?[ =:]{1,2}(\d+)")


def messages(*, stdout: str, stderr: str) -> list[Message]:
    """The first line of each kind and their number, in the order of the first lines, those of stderr before those of stdout."""
    found: dict[MessageKind, Message] = {}
    streams: tuple[tuple[Stream, str], ...] = (("stderr", stderr), ("stdout", stdout))
    for stream, text in streams:
        for kind, line in _lines(text):
            first = found.get(kind)
            found[kind] = dataclasses.replace(first, count=first.count + 1) if first else _message(kind, line, stream)
    return list(found.values())


def _message(kind: MessageKind, line: str, stream: Stream) -> Message:
    shown = CONTROL.sub("", ANSI.sub("", line)).strip()[:LINE_CHARS]
    pid = PID.search(shown)
    return Message(kind=kind, text=shown, stream=stream, pid=whole(pid[1]) if pid else None)


def _lines(text: str) -> Iterator[tuple[MessageKind, str]]:
    """Every line with one of the words.  Which words there are at all is asked first, as most output has none."""
    text = text[-SEARCHED_CHARS:]
    low = text.lower()
    present = [(word, kind) for kind, words in WORDS.items() for word in words if _has(low, word)]
    quoted = False  # the source text that a traceback quotes says what the program could do, not what happened
    for line in text.replace("\r", "\n").split("\n") if present else ():
        quoted, was_place = bool(PLACE.match(line)), quoted
        if was_place and line[:1].isspace():
            continue
        low = line.lower()
        kind = next((kind for word, kind in present if _has(low, word)), None)
        if kind and len(line) <= LONGEST_CHARS:
            yield kind, line


def _has(low: str, word: str) -> bool:
    return all(part in low for part in word.split("…"))
