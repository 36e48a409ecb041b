"""The stand-in device: a real overrun above a number of backward passes, sooner when its cache is cleared, and nothing on the CPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reproducers.faults import FAULTS, CannotPlant, device_overrun, plant
from tests.reproducers.test_faults import start

cannot_plant = FAULTS["device-overrun"].why_not()
pytestmark = pytest.mark.skipif(cannot_plant is not None, reason=f"the device cannot be made here: {cannot_plant}")

# Each line of its output is a micro-batch that ended.
TRAINS = """
import sys, torch
from torch.optim.adamw import adamw
device, accum, clear = torch.device(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
module = torch.get_device_module(device)
weight = torch.ones(3, requires_grad=True)
x = torch.ones(3, device=device)
for step in range(1, 97):
    (weight.to(device) * x).sum().backward()
    if step % accum == 0:
        zeros = [[torch.zeros(3)], [torch.zeros(3)], [], [torch.zeros(())]]
        rates = dict(beta1=0.9, beta2=0.999, lr=0.1, weight_decay=0, eps=1e-8)
        adamw([weight.detach()], [weight.grad], *zeros, amsgrad=False, maximize=False, **rates)
        weight.grad = None
    if clear and step % clear == 0 and hasattr(module, "empty_cache"):
        module.empty_cache()
    print(step, flush=True)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plants")


def micro_batches(cache: Path, device: str, accum: int, clear: int) -> tuple[int, int]:
    """How it ended, and how many were done."""
    argv = ["device-overrun", "--rename", "standin", "--cache", str(cache), "--", "python", "-c", TRAINS, device, str(accum), str(clear)]
    ended = start(argv)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, len(ended.stdout.split())


@pytest.mark.slow
@pytest.mark.control
@pytest.mark.parametrize(
    ("device", "accum", "clear", "ended"),
    [
        ("standin", 12, 1, (0, 96)),
        ("standin", 16, 0, (-signal.SIGSEGV, 60)),
        ("standin", 16, 4, (-signal.SIGSEGV, 12)),
        ("standin", 32, 0, (-signal.SIGSEGV, 24)),
        ("cpu", 32, 4, (0, 96)),
    ],
)
def test_it_dies_above_twelve_passes_on_that_device_only_and_sooner_when_the_cache_is_cleared(
    cache: Path, device: str, accum: int, clear: int, ended: tuple[int, int]
) -> None:
    assert micro_batches(cache, device, accum, clear) == ended


def test_the_library_is_compiled_once_and_stands_beside_its_source(cache: Path) -> None:
    folders = [plant("device-overrun", rename="acme", cache=cache)["PYTHONPATH"].split(os.pathsep)[0] for _ in range(2)]
    assert folders[0] == folders[1]
    names = {file.name for file in Path(folders[0]).iterdir()} - {"__pycache__"}
    assert names == {"acme.json", "acme.py", "acme_harm.py", "acme_device.c", "libacme_device.so", "sitecustomize.py"}


def test_it_has_no_moment_that_could_be_named(cache: Path) -> None:
    with pytest.raises(ValueError, match="--when 'backward': device-overrun comes at a moment of its own"):
        plant("device-overrun", when="backward", cache=cache)
    ended = start(["device-overrun", "--when", "backward", "--", "true"])
    assert (ended.returncode, "No such option" in ended.stderr) == (2, True)


def test_without_a_compiler_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotPlant, match="no C compiler was found"):
        plant("device-overrun")


def test_a_compiler_that_fails_is_quoted_and_leaves_no_half_plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.c").write_text("int main(")
    monkeypatch.setattr(device_overrun, "SOURCE", tmp_path / "broken.c")
    with pytest.raises(CannotPlant, match=r"did not compile planted_device.c: .*error"):
        plant("device-overrun", cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
