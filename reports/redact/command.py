"""Secrets of a command: which words hold one, and the environment variable that a script can take each from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reports.redact.entropy import random_words
from reports.redact.hits import settled
from reports.redact.named import is_secret, named, strength_of
from reports.redact.shapes import shaped

Secrets = dict[str, str]  # the secret -> the name of a variable for it


def secrets_in_command(argv: Sequence[str], env: Mapping[str, str]) -> Secrets:
    """Return what a script must not hold, the longest first: a secret that holds another one goes whole."""
    found: Secrets = {}
    for name, secret in [*_of_variables(env), *_of_words(argv)]:
        if secret not in found:
            found[secret] = _variable(name, set(found.values()))
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def _of_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in env.items():
        if is_secret(value, strength_of(name), name):
            yield name, value
        else:
            yield from _within(value, name)


def _of_words(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for before, word in zip(["", *argv], argv, strict=False):
        option, _, value = word.partition("=")
        if value and is_secret(value, strength_of(option), option):
            yield option, value
        elif before.startswith("-") and "=" not in before and not word.startswith("-") and is_secret(word, strength_of(before), before):
            yield before, word
        else:
            yield from _within(word, option if value else before if before.startswith("-") else "command")


def _within(text: str, name: str) -> Iterator[tuple[str, str]]:
    for hit in settled([*shaped(text), *named(text), *random_words(text)]):
        yield f"{name}_secret", text[hit.start : hit.end]


def _variable(name: str, taken: set[str]) -> str:
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").upper() or "SECRET"
    word = word if not word[0].isdigit() else f"SECRET_{word}"
    number = 2
    chosen = word
    while chosen in taken:
        chosen, number = f"{word}_{number}", number + 1
    return chosen
