"""A device that this machine lacks is known before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.spec import Spec
from matrix.spec.devices import is_device_axis, why_unavailable


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (("cpu", "mps", "cuda"), True),
        (("cuda:0", "cuda:1"), True),
        (("auto", "cpu"), True),
        (("cpu", "gpu", "xpu"), True),
        (("auto", "meta"), False),
        (("cpu", "fast"), False),
        (("cpus",), False),
        ((1, 2), False),
    ],
)
def test_an_axis_is_about_devices_when_all_its_values_are(values: tuple[object, ...], answer: bool) -> None:
    assert is_device_axis(values) is answer


def test_mps_needs_an_apple_machine_on_arm64(tmp_path: Path) -> None:
    assert why_unavailable("mps", system="Darwin", machine="arm64", root=tmp_path) is None
    assert why_unavailable("mps", system="Darwin", machine="x86_64", root=tmp_path) == "mps needs macOS on arm64; this is Darwin on x86_64"
    assert why_unavailable("mps", system="Linux", machine="aarch64", root=tmp_path) == "mps needs macOS on arm64; this is Linux on aarch64"


@pytest.mark.parametrize("node", ["dev/nvidia0", "dev/nvidia3", "proc/driver/nvidia/gpus/0000:01:00.0"])
def test_cuda_needs_a_device_node(tmp_path: Path, node: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()  # the driver without a card
    reason = why_unavailable("cuda", system="Linux", machine="x86_64", root=tmp_path)
    assert reason == "cuda needs an NVIDIA device node (/dev/nvidia0 or /proc/driver/nvidia/gpus); there is none"
    (tmp_path / node).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / node).touch()
    assert _fresh("cuda", tmp_path) is None
    assert _fresh("cuda:0", tmp_path) is None
    assert _fresh("cuda:1", tmp_path) == "there is no device 1: 1 found"


@pytest.mark.parametrize("node", ["dev/kfd", "dev/dxg"])
def test_what_else_calls_itself_cuda_is_left_to_the_program(tmp_path: Path, node: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / node).touch()
    assert why_unavailable("cuda:7", system="Linux", machine="x86_64", root=tmp_path) is None


def test_macos_has_no_cuda(tmp_path: Path) -> None:
    assert why_unavailable("cuda", system="Darwin", machine="arm64", root=tmp_path) == "cuda needs an NVIDIA device; macOS has none"


@pytest.mark.parametrize("device", ["cpu", "auto", "xpu", "gpu:3"])
def test_what_cannot_be_known_from_outside_is_not_refused(tmp_path: Path, device: str) -> None:
    assert why_unavailable(device, system="Linux", machine="x86_64", root=tmp_path) is None


def test_a_specification_asks_only_about_axes_of_devices() -> None:
    matrix = {"device": ["cpu", "mps", "cuda"], "mode": ["mps", "other"]}
    spec = Spec.model_validate({"run": {"command": "x"}, "matrix": matrix})
    assert spec.unavailable("device", "cpu") is None
    assert spec.unavailable("mode", "mps") is None
    assert spec.unavailable("device", "mps") == why_unavailable("mps")
    with pytest.raises(ValueError, match="no axis 'devise'; axes: device, mode"):
        spec.unavailable("devise", "cpu")


def _fresh(device: str, root: Path) -> str | None:
    """Without the memory of what was there before."""
    return why_unavailable.__wrapped__(device, system="Linux", machine="x86_64", root=root)
