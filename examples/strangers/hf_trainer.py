"""A masked language model under Hugging Face's Trainer, tiny and untrained, with examples that are looked up with FAISS.

    python hf_trainer.py --output_dir runs/bert --num_train_epochs 2 --per_device_train_batch_size 8 --dataloader_num_workers 2

Each example is joined with its nearest neighbour; after every epoch the index is built and searched anew in the parent.
"""

from dataclasses import dataclass, field

import faiss
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

VOCABULARY, LENGTH, DIMENSIONS = 200, 24, 64


@dataclass
class DataArguments:
    examples: int = field(default=64, metadata={"help": "How many examples are made."})


class Neighbours(Dataset):
    """Examples with the tokens of their nearest neighbour behind their own."""

    def __init__(self, examples: int) -> None:
        made = np.random.default_rng(0)
        self.tokens = made.integers(5, VOCABULARY, (examples, LENGTH // 2))
        self.vectors = made.standard_normal((examples, DIMENSIONS), dtype=np.float32)
        self.build()

    def build(self) -> None:
        self.index = faiss.IndexFlatIP(DIMENSIONS)
        self.index.add(self.vectors)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> int:
        return at

    def collate(self, chosen: list[int]) -> dict:
        """Runs in the worker processes, with the whole batch at once."""
        _, near = self.index.search(self.vectors[chosen], 2)
        ids = torch.tensor(np.concatenate([self.tokens[chosen], self.tokens[near[:, 1]]], axis=1))
        return {"input_ids": ids, "labels": ids.clone()}


class Refresh(TrainerCallback):
    """The index follows the model."""

    def __init__(self, data: Neighbours) -> None:
        self.data = data

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        self.data.build()
        _, near = self.data.index.search(self.data.vectors, 2)
        print(f"index built anew, {len(np.unique(near[:, 1]))} different neighbours")


def main() -> None:
    data_args, args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    data = Neighbours(data_args.examples)
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    trainer = Trainer(model=BertForMaskedLM(config), args=args, train_dataset=data, data_collator=data.collate, callbacks=[Refresh(data)])
    trainer.train()


if __name__ == "__main__":
    main()
