"""`init`: what only the program's own files tell: configuration files that they name, and what shell scripts take from the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matrix.propose import specification
from matrix.spec import load_spec

VALUES = "batch_size: 32\nmax_steps: 10\ndata: {num_workers: 4}\n"
OVERRIDDEN = {
    "hydra": (
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='train')\ndef main(c): ...\n",
        "conf/train.yaml",
    ),
    "OmegaConf": (
        "from omegaconf import OmegaConf\nc = OmegaConf.merge(OmegaConf.load('conf.yaml'), OmegaConf.from_cli())\n",
        "conf.yaml",
    ),
}


def written(folder: Path, source: str, config: str, *words: str, run_help: bool = False) -> str:
    """The specification for a program beside that configuration file, in a folder below the one from which it is started."""
    script = folder / "job" / "train.py"
    (script.parent / config).parent.mkdir(parents=True)
    (script.parent / config).write_text(VALUES)
    script.write_text(source)
    text = specification(["python", "job/train.py", *words], cwd=folder, env={"PATH": os.environ["PATH"]}, run_help=run_help)
    (folder / "proposed.yaml").write_text(text)
    assert (script.parent / config).read_text() == VALUES
    return text


@pytest.mark.parametrize("way", list(OVERRIDDEN))
def test_where_every_key_can_be_overridden_the_values_in_the_file_become_axes(way: str, tmp_path: Path) -> None:
    written(tmp_path, *OVERRIDDEN[way], "max_steps=20")
    spec = load_spec(tmp_path / "proposed.yaml")
    assert (spec.axis("batch_size").values, spec.axis("batch_size").flag) == ((8, 16, 32), "batch_size=")
    assert (spec.axis("data.num_workers").values, spec.axis("data.num_workers").flag) == ((0, 2, 4), "data.num_workers=")
    assert spec.run.length is not None and spec.run.length.flag == "max_steps="


def test_of_a_file_that_only_the_sources_name_it_is_said_what_it_sets_and_what_would_make_it_vary(tmp_path: Path) -> None:
    source = "import yaml\nfrom pathlib import Path\nc = yaml.safe_load((Path(__file__).parent / 'conf.yaml').read_text())\n"
    text = written(tmp_path, source, "conf.yaml")
    assert "conf.yaml also sets batch_size: 32, data.num_workers: 4, for which no flag was found." in text
    assert "Let the program take the file's path from a flag (--config)" in text
    assert load_spec(tmp_path / "proposed.yaml").axis("threads")


def test_a_file_that_is_the_default_of_a_flag_is_read_like_one_that_the_command_names(tmp_path: Path) -> None:
    source = (
        "import argparse\nparser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)\n"
        "parser.add_argument('--config', default='job/configs/train.yaml', help='file')\n"
        "parser.add_argument('--batch-size', type=int, help='of a step')\nparser.parse_args()\n"
    )
    text = written(tmp_path, source, "configs/train.yaml", run_help=True)
    assert load_spec(tmp_path / "proposed.yaml").axis("batch-size").values == (8, 16, 32)
    assert "train.yaml also sets data.num_workers: 4" in text and "other: {args: [--config, job/configs/other_train.yaml]}}}\n" in text


def test_what_a_shell_script_takes_from_the_environment_becomes_axes(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text('BATCH_SIZE=${BATCH_SIZE:-32}\n: "${WORKERS:=4}"\nSTEPS=${1:-10}\necho step $STEPS $BATCH_SIZE $WORKERS\n')
    (tmp_path / "proposed.yaml").write_text(specification(["bash", "run.sh"], cwd=tmp_path, env={"PATH": os.environ["PATH"]}))
    spec = load_spec(tmp_path / "proposed.yaml")
    assert (spec.axis("batch_size").values, spec.axis("batch_size").env) == ((8, 16, 32), ("BATCH_SIZE",))
    assert (spec.axis("workers").values, spec.axis("workers").env) == ((0, 2, 4), ("WORKERS",))
