"""Words and figures in a program's output."""

from __future__ import annotations

import math

import pytest

from matrix.evidence.messages import messages
from matrix.evidence.metrics import metrics
from matrix.records import Message, MessageKind

LINES: list[tuple[MessageKind, str]] = [
    ("heap damaged", "free(): double free detected in tcache 2"),
    ("heap damaged", "malloc(): corrupted top size"),
    ("heap damaged", "corrupted size vs. prev_size"),
    ("heap damaged", "tcache_thread_shutdown(): unaligned tcache chunk detected"),
    ("heap damaged", "free(): unaligned chunk detected in tcache 2"),
    ("heap damaged", "free(): corrupted unsorted chunks"),
    ("heap damaged", "mremap_chunk(): invalid pointer"),
    ("heap damaged", "Fatal glibc error: malloc assertion failure in sysmalloc: (old_top == initial_top (av) && old_size == 0)"),
    ("heap damaged", "python: malloc.c:2617: sysmalloc: Assertion `(old_top == initial_top (av) && old_size == 0)' failed."),
    ("heap damaged", "memory clobbered past end of allocated block"),
    ("heap damaged", "src/tcmalloc.cc:302] Attempt to free invalid pointer 0x5581deadbeef"),
    ("heap damaged", "python(17,0x1) malloc: *** error for object 0x1: pointer being freed was not allocated"),
    ("numpy abi", "AttributeError: _ARRAY_API not found"),
    ("numpy abi", "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88"),
    ("numpy abi", "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf"),
    ("missing symbol", "ImportError: /x/_C.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"),
    ("missing symbol", "ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/_C.so)"),
    ("missing library", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("recursion", "RecursionError: maximum recursion depth exceeded while calling a Python object"),
    ("stack overflow", "Fatal Python error: Cannot recover from stack overflow."),
    ("worker died", "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed."),
    ("cuda out of memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("cuda assert", "RuntimeError: CUDA error: device-side assert triggered"),
    ("cuda error", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("corrupt input", "zipfile.BadZipFile: File is not a zip file"),
    ("corrupt input", "_pickle.UnpicklingError: pickle data was truncated"),
    ("corrupt input", "ValueError: cannot reshape array of size 10 into shape (3,4)"),
    ("corrupt input", "zlib.error: Error -3 while decompressing data: invalid block type"),
    ("corrupt input", "EOFError: Ran out of input"),
    ("corrupt input", "ValueError: shard-3.bin: the checksum of record 12 does not match"),
    ("corrupt input", "OSError: train.idx: data corrupted at byte 81920"),
    ("corrupt input", "ValueError: could not convert string to float: '0.31#4'"),
    ("corrupt input", "struct.error: unpack requires a buffer of 260 bytes"),
    ("corrupt input", "ValueError: buffer size must be a multiple of element size"),
    ("corrupt input", "pandas.errors.ParserError: Error tokenizing data. C error: Expected 3 fields in line 5, saw 4"),
    ("corrupt input", "sqlite3.DatabaseError: database disk image is malformed"),
    ("corrupt input", "OSError: broken data stream when reading image file"),
    ("corrupt input", "pyarrow.lib.Error: Parquet magic bytes not found in footer"),
    ("corrupt input", "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"),
    ("corrupt input", "wave.Error: file does not start with RIFF id"),
    ("no space", "OSError: [Errno 28] No space left on device"),
    ("no space", "sqlite3.OperationalError: database or disk is full"),
    ("no more ports", "OSError: [Errno 99] Cannot assign requested address"),
    ("too many files", "OSError: [Errno 24] Too many open files"),
    ("too many files", "OSError: [Errno 109] Too many references: cannot splice"),
    ("no more processes", "RuntimeError: can't start new thread"),
    ("no more processes", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ("out of memory", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)"),
    ("out of memory", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("c++ exception", "terminate called after throwing an instance of 'faiss::FaissException'"),
    ("openmp conflict", "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized."),
    ("cpu time", "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-03-07T15:50:00 DUE TO TIME LIMIT ***"),
    ("broken pipe", "BrokenPipeError: [Errno 32] Broken pipe"),
    ("bad number", "FloatingPointError: loss is nan at step 17"),
    ("assertion", "index.cpp:17: void search(int): Assertion `k > 0' failed."),
    ("fatal python error", "Fatal Python error: Segmentation fault"),
]


@pytest.mark.parametrize(("kind", "line"), LINES, ids=[line[:40] for _, line in LINES])
def test_a_line_is_known_by_its_words(kind: MessageKind, line: str) -> None:
    (found,) = messages(stdout="", stderr=f"step 1 loss=0.5\n\x1b[31m{line}\x1b[0m\n")
    assert (found.kind, found.text, found.stream, found.count) == (kind, line, "stderr", 1)


@pytest.mark.parametrize(
    "line", ["step 3 loss=0.1", "epoch 2 finished in 3 s", "saved to out/epoch1.pt", "Loaded 771115 vectors", "warning: deprecated"]
)
def test_ordinary_lines_are_no_messages(line: str) -> None:
    assert messages(stdout=line, stderr=line) == []


def test_lines_of_one_kind_are_counted_and_the_first_is_kept_with_its_pid() -> None:
    text = "".join(f"RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed.\n" for pid in (7, 8, 9))
    (found,) = messages(stdout="", stderr=text)
    assert (found.count, found.pid) == (3, 7)
    both = messages(stdout="Broken pipe\n", stderr="Bus error\n")
    assert both == [
        Message(kind="bus error", text="Bus error", stream="stderr"),
        Message(kind="broken pipe", text="Broken pipe", stream="stdout"),
    ]


def test_a_long_line_is_data_and_a_bar_has_no_line_ends() -> None:
    assert messages(stdout="x" * 5000 + " memoryerror", stderr="") == []
    assert [one.kind for one in messages(stdout="", stderr="10%|#  | 1/10\r20%|##  | 2/10\rMemoryError\r")] == ["out of memory"]


# ------------------------------------------------------------------ figures
def test_figures_are_followed_by_name_with_the_step_at_which_one_was_no_number() -> None:
    lines = [f"step {n:04d} loss={value} lr=1e-4" for n, value in enumerate(["0.5", "0.4", "9e30", "inf", "nan"], start=1)]
    loss, rate = metrics("\n".join(lines))
    assert (loss.name, loss.last, loss.last_step, loss.values, loss.recent) == ("loss", "nan", 5, 5, ["0.5", "0.4", "9e30", "inf", "nan"])
    assert (loss.first_bad, loss.first_bad_step, loss.largest_abs, loss.median_abs) == ("inf", 4, 9e30, 0.5)
    assert (rate.name, rate.last, rate.first_bad) == ("lr", "1e-4", None)


def test_forms_of_figures() -> None:
    bar = "12%|##   | 3/25 [00:12<01:30, 2.1it/s, loss=0.25, acc=0.5]\r" * 2
    logged = '{"step": 3, "train/loss": 0.5, "time": "12:30"}\n' * 2
    spaced = "[rank0]: step 7 | grad_norm: 1.5 | loss = -2.0\n" * 2
    assert [metric.name for metric in metrics(bar)] == ["loss", "acc"]
    assert [metric.name for metric in metrics(logged)] == ["train/loss"]
    assert [(metric.name, metric.last) for metric in metrics(spaced)] == [("grad_norm", "1.5"), ("loss", "-2.0")]


def test_what_is_printed_once_is_a_setting_unless_it_is_no_number() -> None:
    assert metrics("seed=7 width=512\nhttp://host:8080 at 12:30:59\n") == []
    (found,) = metrics("final loss=nan\n")
    assert (found.last, found.median_abs, math.isnan(float(found.last))) == ("nan", None, True)


def test_the_source_text_in_a_traceback_is_no_message() -> None:
    text = """Traceback (most recent call last):
  File "/usr/lib/python3.11/gzip.py", line 530, in _read_eof
    raise BadGzipFile("CRC check failed %s != %s" % (crc32, self._crc))
  File "train.py", line 9, in step
    assert "too many open files" not in notes
gzip.BadGzipFile: CRC check failed 0x1 != 0x2
"""
    assert [(found.kind, found.text) for found in messages(stdout="", stderr=text)] == [
        ("corrupt input", "gzip.BadGzipFile: CRC check failed 0x1 != 0x2")
    ]
