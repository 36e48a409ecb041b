from __future__ import annotations

import pytest
import torch

from trainer import InputError
from trainer.devices import clear_cache, open_device, synchronize


def test_the_cpu_is_always_there_and_has_no_cache_to_clear() -> None:
    device = open_device("cpu")
    clear_cache(device)
    synchronize(device)
    assert device == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu", "cpu:x", "", "meta"])
def test_a_name_that_torch_knows_no_device_for_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        open_device(name)
    assert str(caught.value).startswith(f"--device {name}: torch {torch.__version__} ")
    assert str(caught.value).endswith("; --device cpu always works")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_card_that_is_not_there_is_refused_and_the_one_that_is_can_be_cleared() -> None:
    with pytest.raises(InputError, match=r"devices of this kind, which are counted from 0"):
        open_device("cuda:99")
    device = open_device("cuda")
    clear_cache(device)
    synchronize(device)
