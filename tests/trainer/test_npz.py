from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer import InputError
from trainer.npz import open_npz, write_npz

ARRAYS = {
    "rows": np.arange(12, dtype=np.float32).reshape(4, 3),
    "columns": np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4)),
    "scalar": np.array(5),
    "empty": np.empty((0, 7), np.float32),
    "big_endian": np.arange(5, dtype=">i4"),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_array_equals_the_one_that_numpy_loads(tmp_path: Path, save: object) -> None:
    path = tmp_path / "x.npz"
    save(path, **ARRAYS)  # type: ignore[operator]
    opened = open_npz(path, "anything")
    with np.load(path) as loaded:
        assert list(opened) == list(loaded)
        for name, array in opened.items():
            np.testing.assert_array_equal(array, loaded[name], strict=True)
            assert array.dtype == loaded[name].dtype


def test_a_stored_member_is_mapped_and_a_compressed_one_is_loaded_and_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "stored.npz", a=ARRAYS["rows"])
    np.savez_compressed(tmp_path / "packed.npz", a=ARRAYS["rows"])
    stored = open_npz(tmp_path / "stored.npz", "a")["a"]
    assert isinstance(stored, np.memmap)
    assert not stored.flags.writeable
    assert capsys.readouterr().err == ""
    assert not isinstance(open_npz(tmp_path / "packed.npz", "a")["a"], np.memmap)
    assert "a.npy is compressed, so it is loaded whole" in capsys.readouterr().err


def test_a_mapped_array_reads_the_file_and_not_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=ARRAYS["rows"])
    array = open_npz(path, "a")["a"]
    assert isinstance(array, np.memmap)
    with path.open("r+b") as file:
        file.seek(array.offset)
        file.write(np.float32(99).tobytes())
    assert array[0, 0] == 99


def damage_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def damage_middle(path: Path) -> None:
    """The directory of members stays whole and points to places that are not there."""
    content = path.read_bytes()
    path.write_bytes(content[60:])


def damage_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"(4, 3)", b"(9, 3)"))


def write_text(path: Path) -> None:
    path.write_text("not a zip file")


def write_objects(path: Path) -> None:
    np.savez(path, a=np.array([{}, None], dtype=object))


def write_other_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"hello")


@pytest.mark.parametrize("spoil", [damage_end, damage_middle, damage_header, write_text, write_objects, write_other_member])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=ARRAYS["rows"])
    spoil(path)  # type: ignore[operator]
    with pytest.raises(InputError) as caught:
        open_npz(path, "one array called a")
    text = str(caught.value)
    assert text.startswith(f"{path}: damaged or no npz file (")
    assert text.endswith("; expected one array called a")


def test_a_damaged_compressed_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    content[500] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged or no npz file"):
        open_npz(path, "a")


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.npz: No such file or directory; expected pairs"):
        open_npz(tmp_path / "absent.npz", "pairs")
    with pytest.raises(InputError, match="Is a directory"):
        open_npz(tmp_path, "pairs")


def test_chunks_become_one_array_that_numpy_loads(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((10, 3), np.float32)
    b = np.ones(2, np.float32)
    write_npz(tmp_path / "x.npz", {"a": (array.shape, lambda: np.array_split(array, 4)), "b": (b.shape, lambda: [b])})
    with np.load(tmp_path / "x.npz") as loaded:
        np.testing.assert_array_equal(loaded["a"], array, strict=True)
        np.testing.assert_array_equal(loaded["b"], b, strict=True)
    assert isinstance(open_npz(tmp_path / "x.npz", "a")["a"], np.memmap)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=ARRAYS["rows"])
    before = path.read_bytes()

    def breaks() -> Iterator[NDArray[np.float32]]:
        yield np.zeros(2, np.float32)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_npz(path, {"a": ((4,), breaks)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a", "a" * 61, "ä"])
def test_written_values_begin_at_a_multiple_of_64_bytes_whatever_stands_before_them(tmp_path: Path, name: str) -> None:
    rows = np.arange(7, dtype=np.float32)
    members = {f"{name}{n}": (rows[: n + 1].shape, lambda n=n: [rows[: n + 1]]) for n in range(5)}
    write_npz(tmp_path / "x.npz", members)  # type: ignore[arg-type]
    opened = open_npz(tmp_path / "x.npz", "anything")
    for n, (member, array) in enumerate(opened.items()):
        assert member == f"{name}{n}"
        assert isinstance(array, np.memmap)
        assert array.offset % 64 == array.ctypes.data % 64 == 0
        np.testing.assert_array_equal(array, rows[: n + 1])
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.testzip() is None
