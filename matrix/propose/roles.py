"""What the name of a flag, of a key or of an environment variable says: that it sets the batch size, the workers, the device, ..."""

from __future__ import annotations

import re
from typing import Literal

Role = Literal[
    "batch", "accum", "workers", "threads", "device", "no_device", "start", "precision", "half", "switch", "amount", "seed",
    "steps", "epochs", "output", "config", "resume", "ranks",
]  # fmt: skip

# Of other data than the one that is trained on, of other things than training steps.
ASIDE = re.compile(
    r"(?:^|_)(?:eval|val|valid|validation|test|predict|inference|warmup|log|logging|save|saving|sanity|queue|print|debug)(?:_|$)"
)
SIDE = r"(?:(?:per|device|gpu|train|training|data|loader|dataloader|micro|mini|local|global|total|trainer|num|n|max|the)_)*"
FORMS: dict[Role, str] = {
    "batch": rf"{SIDE}(?:bs|bsz|batch|batch_?size|batch_sz|micro_?batch|mini_?batch)(?:_(?:size|per_gpu|per_device|train))*",
    "accum": r"(?:n_|num_)?(?:accum|grad_?accum|accum_grad|(?:grad|gradient)_accumulation|accumulate_grad(?:ient)?)(?:ulation|ulate)?"
    r"(?:_?(?:steps|iter|iters|batches|every|freq))?",
    "workers": rf"{SIDE}(?:workers|worker|nw)(?:_(?:per_gpu|count|num))?",
    "threads": rf"{SIDE}(?:torch_|cpu_|intra_op_|intraop_|omp_)?threads(?:_count)?",
    "ranks": r"n_?procs?_per_node|n_?procs?|num_proc(?:esse)?s|world_size|(?:num_|n_?)ranks|ranks|np|(?:num_)?gpus(?:_per_node)?|"
    r"(?:num_)?devices|num_replicas",
    "device": r"device|accelerator|device_type|platform|torch_device",
    "no_device": r"no_cuda|no_gpu|no_accel|no_mps|disable_cuda|use_cpu|cpu|cpu_only|force_cpu",
    "start": r"(?:(?:dataloader_)?(?:mp|multiprocessing|worker)_(?:context|start_method|start)|start_method|mp_start)",
    "precision": r"precision|dtype|torch_dtype|mixed_precision|amp_dtype|amp_mode",
    "half": r"fp16|bf16|amp|half|use_amp|use_fp16|tf32|autocast",
    "switch": r"shuffle|pin_mem(?:ory)?|persistent_workers|(?:torch_|use_)?compile|(?:gradient|activation|grad)_checkpointing|async|"
    r"prefetch|(?:use_)?cache|in_memory|mmap|fused|channels_last|ema|deterministic|benchmark",
    "amount": r"prefetch|prefetch_factor|(?:max_)?seq(?:uence)?_len(?:gth)?|max_len(?:gth)?|context_length|block_size|cache_size|"
    r".*cache_mb|buffer_size|shuffle_buffer|(?:memory_)?bank_size|chunk|chunk_size|img_size|image_size|imgsz",
    "seed": r"seed|random_seed|manual_seed|seed_everything|rng_seed|random_state",
    "steps": r"(?:max|num|n|total|train|training|max_train|num_train|n_train|stop_after)?_?(?:steps|iters|iterations|updates|max_iter)",
    "epochs": r"(?:max|num|n|total|num_train|train|training)?_?(?:epochs|epoch)",
    "output": r"(?:out|output|save|logs?|logging|tensorboard|tb|ckpts?|checkpoints?|work|runs?|results?|exp|experiment|default_root|"
    r"artifacts?|dump)_?(?:dir|directory|folder|root)|out|(?:output|out|save|log)_path|output|save|save_to|log_file|dirpath",
    "config": r"config|cfg|conf|config_file|config_path|configuration|yaml|hparams|(?:params|hparams)_file",
    "resume": r"resume|resume_from|resume_from_checkpoint|resume_path|ckpt_path|load_checkpoint",
}
PATTERNS = {role: re.compile(form) for role, form in FORMS.items()}


def role_of(name: str) -> Role | None:
    """Of `--per_device_train_batch_size`, `data.init_args.batch_size=` or BATCH_SIZE."""
    plain = plain_name(name)
    if ASIDE.search(plain) and not PATTERNS["output"].fullmatch(plain):
        return None
    return next((role for role, pattern in PATTERNS.items() if pattern.fullmatch(plain)), None)


def plain_name(name: str) -> str:
    """`batch_size`: the last part, in small letters, without dashes."""
    last = re.split(r"[./]", name.strip("-+=").rstrip("="))[-1]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower().replace("-", "_")
