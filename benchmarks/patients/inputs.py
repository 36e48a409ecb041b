"""Small synthetic inputs for the patients: texts, pictures, a tiny model.

`python -m benchmarks.patients.inputs NAME FOLDER` makes one of them: the libraries that it needs stay out of the benchmark's own process.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

WORDS = [f"w{number}" for number in range(500)]


def sentences(count: int, words: int = 20, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=words)) for _ in range(count)]


def characters(folder: Path) -> None:
    """The files that nanoGPT's preparation of Shakespeare's characters writes."""
    import pickle

    import numpy as np

    place = folder / "data" / "shakespeare_char"
    draw = np.random.default_rng(0)
    for name, count in (("train", 20_000), ("val", 4_000)):
        draw.integers(0, 65, count).astype(np.uint16).tofile(place / f"{name}.bin")
    letters = [chr(32 + number) for number in range(65)]
    tables = {"vocab_size": 65, "itos": dict(enumerate(letters)), "stoi": {letter: number for number, letter in enumerate(letters)}}
    (place / "meta.pkl").write_bytes(pickle.dumps(tables))


def corpus(folder: Path) -> None:
    """A corpus of 5,000 words, and the model of an earlier training."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(5000)]
    place = folder / "data" / "corpus"
    place.mkdir(parents=True)
    for name, count in (("train", 6000), ("valid", 300), ("test", 300)):
        lines = [" ".join(draw.choices(words, k=15)) for _ in range(count)]
        (place / f"{name}.txt").write_text("\n".join(lines) + "\n")
    (folder / "model.pt").write_text("the model of last week\n")


def pictures(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    for part, count in (("train", 100), ("val", 4)):
        for kind in ("cat", "dog"):
            place = folder / "pictures" / part / kind
            place.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 255, (64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number:04}.jpg")


def records(folder: Path) -> None:
    lines = [json.dumps({"text": sentence}) for sentence in sentences(400)]
    (folder / "data").mkdir()
    (folder / "data" / "train.json").write_text("\n".join(lines) + "\n")


def tiny_model(place: Path, width: int = 32) -> None:
    """A model and a tokenizer of transformers that nobody trained."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    vocabulary = {"<|endoftext|>": 0, "<unk>": 1, **{word: number for number, word in enumerate(WORDS, 2)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=end, bos_token=end, pad_token=end, unk_token="<unk>", model_max_length=128
    )
    tokenizer.save_pretrained(place)
    shape = GPT2Config(vocab_size=len(vocabulary), n_positions=128, n_embd=width, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(shape).save_pretrained(place)


def language(folder: Path) -> None:
    tiny_model(folder / "tiny")
    records(folder)


def wikitext(folder: Path) -> None:
    """Local copies of a model and of a data set under the names that the hub has for them."""
    import pyarrow
    from pyarrow import parquet

    tiny_model(folder / "HuggingFaceTB" / "SmolLM-360M")
    place = folder / "Salesforce" / "wikitext"
    (place / "wikitext-2-v1").mkdir(parents=True)
    parts = ""
    for name, count in (("train", 600), ("validation", 40), ("test", 40)):
        table = pyarrow.table({"text": sentences(count)})
        parquet.write_table(table, place / "wikitext-2-v1" / f"{name}-00000-of-00001.parquet")
        parts += f"  - split: {name}\n    path: wikitext-2-v1/{name}-*\n"
    (place / "README.md").write_text(f"---\nconfigs:\n- config_name: wikitext-2-v1\n  data_files:\n{parts}---\n")


def questions(folder: Path) -> None:
    """TREC's questions, and a sentence model of 2 MB."""
    from sentence_transformers import SentenceTransformer, models

    with tempfile.TemporaryDirectory() as place:
        tiny_model(Path(place), width=128)
        words = models.Transformer(place)
        parts = [words, models.Pooling(words.get_word_embedding_dimension())]
        SentenceTransformer(modules=parts).save(str(folder / "all-distilroberta-v1"))
    (folder / "datasets" / "trec").mkdir(parents=True)
    for name, count in (("train_5500", 1200), ("TREC_10", 100)):
        lines = [f"KIND:{number % 6} {sentence}" for number, sentence in enumerate(sentences(count, words=8))]
        (folder / "datasets" / "trec" / f"{name}.label").write_text("\n".join(lines) + "\n")


def digits(folder: Path) -> None:
    """MNIST's files with random pixels, in both places in which Lightning's examples look for them."""
    import numpy as np

    draw = np.random.default_rng(0)
    place = folder / "data" / "MNIST" / "raw"
    place.mkdir(parents=True)
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        pixels = draw.integers(0, 255, count * 784, dtype=np.uint8).tobytes()
        labels = draw.integers(0, 10, count, dtype=np.uint8).tobytes()
        (place / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        (place / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)
    (folder / "Datasets").symlink_to("data")


MAKERS: dict[str, Callable[[Path], None]] = {
    maker.__name__: maker for maker in (characters, corpus, pictures, language, wikitext, questions, digits)
}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]))
