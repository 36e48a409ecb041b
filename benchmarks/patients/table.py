"""The patients: what is run, what kills it, and what a right answer is.  Nothing is learnt from the answers: they only score."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from benchmarks.patients.surroundings import NOTHING, Killer, Surroundings

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patient:
    """A program of somebody else, a fault, and the right answers.

    `sources` are paths below the folder of sources and their places in the patient's folder; a patient without any is a module of
    an installed package.  `place` and `advice` are regular expressions.
    """

    name: str
    command: str
    around: Surroundings = NOTHING
    spoil: Callable[[Path], None] | None = None  # damages the data: the other kind of fault
    sources: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ("torch",)
    inputs: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    causes: tuple[str, ...]
    axes: tuple[str, ...] = ()  # axes that a right culprit may name, with _ for -; `init` calls an output's place "folder"
    place: str  # what the right place is called in the answer, where no axis is named
    advice: str  # what helps, where no change of an axis was tried
    lives_s: float = 90.0  # a run that lives as long has survived
    hangs: bool = False  # the fault makes it wait for ever: a run that lives on has died
    log: bool = False  # the log of a death is handed to `init`


def _token_out_of_range(folder: Path) -> None:
    """One batch of tokens of another vocabulary, as of a file that was prepared by another version."""
    import numpy as np

    tokens = np.memmap(folder / "data" / "shakespeare_char" / "train.bin", dtype=np.uint16, mode="r+")
    tokens[12_000:12_040] = 50_000
    tokens.flush()


def _cut_off_record(folder: Path) -> None:
    """A record whose end was lost, as of a copy that was interrupted and gone on with."""
    path = folder / "data" / "train.json"
    lines = path.read_text().split("\n")
    lines[200] = lines[200][:60]
    path.write_text("\n".join(lines))


def _cut_off_picture(folder: Path) -> None:
    path = folder / "pictures" / "train" / "dog" / "0042.jpg"
    path.write_bytes(path.read_bytes()[:900])


def _train_gpt(out_dir: str) -> str:
    flags = (
        "device=cpu compile=False eval_iters=1 log_interval=1 block_size=32 batch_size=4 n_layer=2 n_head=2 n_embd=64 "
        "max_iters=60 lr_decay_iters=60 dropout=0.0 eval_interval=20 always_save_checkpoint=True"
    )
    words = [f"--{flag}" for flag in [*flags.split(), f"out_dir={out_dir}"]]
    return " ".join(["python train.py config/train_shakespeare_char.py", *words])


ONE_THREAD = (("OMP_NUM_THREADS", "1"),)
OFFLINE = (*ONE_THREAD, ("HF_HUB_OFFLINE", "1"), ("HF_HOME", "{folder}/.hf"))
NANOGPT = tuple((f"nanoGPT/{name}", name) for name in ("train.py", "model.py", "configurator.py", "config", "data"))
LIGHTGBM = (
    ("LightGBM/examples/python-guide/simple_example.py", "guide/simple_example.py"),
    ("LightGBM/examples/regression", "regression"),
)
ACCELERATE = (("accelerate/examples/by_feature/gradient_accumulation_for_autoregressive_models.py", "train_lm.py"),)
IMAGENET = (("examples/imagenet/main.py", "main.py"),)

PATIENTS = (
    Patient(
        name="nanogpt_full_disk",
        command=_train_gpt("disk/out"),
        sources=NANOGPT,
        inputs=("characters",),
        env=ONE_THREAD,
        around=Surroundings(told="1 MiB left on the disk of the checkpoints", mounts={"disk": "1m"}),
        causes=("shm_or_disk_full",),
        axes=("folder", "out_dir"),
        place=r"disk|checkpoint|out_dir",
        advice=r"another (folder|place|disk|file system)|(free|more) (space|room)|room on",
    ),
    Patient(
        name="nanogpt_wrong_token",
        command=_train_gpt("out"),
        sources=NANOGPT,
        inputs=("characters",),
        env=ONE_THREAD,
        spoil=_token_out_of_range,
        causes=("corrupt_input_data",),
        place=r"train\.bin|index out of range|out of range|sample|record|data",
        advice=r"sample|record|data|input|check",
    ),
    Patient(
        name="word_model_address_space",
        command="python main.py --data data/corpus --epochs 1 --batch_size 256 --emsize 32 --nhid 32 --log-interval 1 --dropout 0",
        sources=tuple((f"examples/word_language_model/{name}.py", f"{name}.py") for name in ("main", "data", "model")),
        inputs=("corpus",),
        env=ONE_THREAD,
        around=Surroundings(told="ulimit -v 1075200", limits={resource.RLIMIT_AS: 1050 * MIB}),
        causes=("resource_limit",),
        axes=("batch_size", "bptt"),
        place=r"address space|ulimit -v|RLIMIT_AS|virtual memory",
        advice=r"ulimit -v|address space",
        log=True,
    ),
    Patient(
        name="imagenet_cut_off_picture",
        command="python main.py pictures -a mobilenet_v3_small --epochs 1 -b 16 -j 2 -p 1",
        sources=IMAGENET,
        needs=("torch", "torchvision"),
        inputs=("pictures",),
        env=ONE_THREAD,
        spoil=_cut_off_picture,
        causes=("corrupt_input_data",),
        place=r"truncated|0042\.jpg|file|picture|image",
        advice=r"sample|record|data|input|file|image",
    ),
    Patient(
        name="run_clm_cut_off_record",
        command="python run_clm.py --model_name_or_path tiny --train_file data/train.json --do_train --per_device_train_batch_size 4 "
        "--block_size 32 --max_steps 20 --logging_steps 1 --output_dir out --report_to none",
        sources=(("transformers/examples/pytorch/language-modeling/run_clm.py", "run_clm.py"),),
        needs=("torch", "transformers", "datasets"),
        inputs=("language",),
        env=OFFLINE,
        spoil=_cut_off_record,
        causes=("corrupt_input_data",),
        place=r"train\.json|row|JSON",
        advice=r"record|data|input|file|row",
    ),
    Patient(
        name="trl_open_files",
        command="python -m trl.scripts.sft --model_name_or_path ./tiny --dataset_name ./data --per_device_train_batch_size 4 "
        "--max_length 64 --max_steps 10 --logging_steps 1 --output_dir out --report_to none --dataloader_num_workers 8 --bf16 False "
        "--gradient_checkpointing False",
        needs=("torch", "trl"),
        inputs=("language",),
        env=OFFLINE,
        around=Surroundings(told="ulimit -n 64", limits={resource.RLIMIT_NOFILE: 64}),
        causes=("resource_limit",),
        axes=("dataloader_num_workers",),
        place=r"open files|ulimit -n|descriptors",
        advice=r"ulimit -n|open files|descriptors",
    ),
    Patient(
        name="timm_small_shm",
        command="python train.py --data-dir pictures --model test_resnet --num-classes 2 --img-size 160 -b 64 --workers 4 --epochs 1 "
        "--log-interval 1 --device cpu",
        sources=(("pytorch-image-models/train.py", "train.py"), ("pytorch-image-models/timm", "timm")),
        needs=("torch", "torchvision"),
        inputs=("pictures",),
        env=ONE_THREAD,
        around=Surroundings(told="/dev/shm of 8 MiB", mounts={"/dev/shm": "8m"}),
        causes=("shm_or_disk_full",),
        axes=("workers", "batch_size", "b", "img_size"),
        place=r"/dev/shm|shared memory",
        advice=r"/dev/shm|shared memory|shm",
        lives_s=120,
        hangs=True,
    ),
    Patient(
        name="lightgbm_few_processes",
        command="python guide/simple_example.py",
        sources=LIGHTGBM,
        needs=("lightgbm", "pandas", "sklearn"),
        env=(("OMP_NUM_THREADS", "64"),),
        around=Surroundings(told="a container of 40 processes", pids=40),
        causes=("resource_limit",),
        axes=("threads",),
        place=r"processes|pids|threads",
        advice=r"pids|processes|threads",
        log=True,
    ),
    Patient(
        name="xgboost_small_temp",
        command="python external_memory.py",
        sources=(("xgboost/demo/guide-python/external_memory.py", "external_memory.py"),),
        needs=("xgboost", "sklearn"),
        env=(*ONE_THREAD, ("TMPDIR", "{folder}/tmp")),
        around=Surroundings(told="TMPDIR on a file system of 4 MiB", mounts={"tmp": "4m"}),
        causes=("shm_or_disk_full",),
        axes=("folder", "tmpdir", "temp", "tmp"),
        place=r"tmp|temp",
        advice=r"TMPDIR|temp|another (folder|place|disk|file system)|room|space",
    ),
    Patient(
        name="sentence_transformers_file_size",
        command="python training_batch_hard_trec.py",
        sources=(
            (
                "sentence-transformers/examples/sentence_transformer/training/other/training_batch_hard_trec.py",
                "training_batch_hard_trec.py",
            ),
        ),
        needs=("torch", "sentence_transformers", "datasets"),
        inputs=("questions",),
        env=OFFLINE,
        around=Surroundings(told="ulimit -f 1024", limits={resource.RLIMIT_FSIZE: MIB}),
        causes=("resource_limit",),
        place=r"file size|ulimit -f|fsize|File too large",
        advice=r"ulimit -f|file size|fsize",
        lives_s=180,
    ),
    Patient(
        name="accelerate_rank_killed",
        command="torchrun --nproc_per_node=2 train_lm.py --cpu --per_device_batch_size 1 --gradient_accumulation_steps 2",
        sources=ACCELERATE,
        needs=("torch", "accelerate", "transformers", "datasets"),
        inputs=("wikitext",),
        env=OFFLINE,
        around=Surroundings(told="somebody sends SIGKILL to rank 1 after 15 s", killer=Killer(script="train_lm.py", after_s=15, rank="1")),
        causes=("external_signal",),
        place=r"rank 1|SIGKILL",
        advice=r"who|sent|sender|sends|outside",
        lives_s=60,
    ),
    Patient(
        name="keras_time_limit",
        command="python demo_functional.py",
        sources=(("keras/examples/demo_functional.py", "demo_functional.py"),),
        needs=("keras", "jax"),
        env=(*ONE_THREAD, ("KERAS_BACKEND", "jax")),
        around=Surroundings(
            told="SIGTERM from outside after 25 s, as of a time limit",
            killer=Killer(script="demo_functional.py", after_s=25, number=signal.SIGTERM),
        ),
        causes=("watchdog_or_time_limit", "external_signal"),
        place=r"SIGTERM|time",
        advice=r"time|who|sent|sender|sends",
        lives_s=50,
    ),
    Patient(
        name="lightning_container",
        command="python pytorch/basics/autoencoder.py --trainer.max_steps 3 --trainer.limit_val_batches 1 --trainer.limit_test_batches 1 "
        "--trainer.limit_predict_batches 1 --trainer.default_root_dir out --model.hidden_dim 4096 --data.batch_size 4096",
        sources=(("pytorch-lightning/examples/pytorch", "pytorch"),),
        needs=("torch", "torchvision", "lightning", "jsonargparse"),
        inputs=("digits",),
        env=ONE_THREAD,
        around=Surroundings(told="a container of 640 MiB", memory_bytes=640 * MIB),
        causes=("memory_working_set",),
        axes=("batch_size", "hidden_dim"),
        place=r"memory",
        advice=r"smaller batch|batch",
        lives_s=150,
    ),
    Patient(
        name="imagenet_container_workers",
        command="python main.py --dummy -a shufflenet_v2_x0_5 --epochs 1 -b 64 -j 8 -p 1",
        sources=IMAGENET,
        needs=("torch", "torchvision"),
        env=ONE_THREAD,
        around=Surroundings(told="a container of 1500 MiB", memory_bytes=1500 * MIB),
        causes=("memory_worker_multiplication",),
        axes=("workers", "j", "batch_size", "b"),
        place=r"workers",
        advice=r"fewer workers|workers",
        lives_s=100,
    ),
)
NAMES = tuple(patient.name for patient in PATIENTS)


def copied(patient: Patient, sources: Path | None, folder: Path) -> str:
    """Copy the patient's files into `folder`; return why that is not possible, or ""."""
    for source, name in patient.sources:
        origin = sources / source if sources else None
        if origin is None or not origin.exists():
            return f"no {source} below --sources"
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, place)
        else:
            shutil.copy(origin, place)
    return ""
