"""Secrets in a command: which names and addresses give them away, and the words for people without them."""

from __future__ import annotations

import re
from collections.abc import Sequence

# What the last part of a name says: HF_TOKEN, --api-key, AWS_ACCESS_KEY_ID; not --tokenizer, MAX_TOKENS, --key-frames.
NAME = r"[\w.+-]*(?:key|token|secrets?|passwd|passwords?|passphrase|pwd|credentials?)(?:[-_](?:id|\d+))?"
NAMED = re.compile(NAME, re.IGNORECASE)
WITH_VALUE = re.compile(rf"(?P<name>{NAME})=(?P<value>.*)", re.IGNORECASE | re.DOTALL)
# The same inside a text for a shell, as in bash -c '…'
INSIDE = re.compile(
    rf"""(?<![\w.+-])(?P<name>{NAME}=|-{NAME}\s+(?!-))(?P<value>(?:'[^']*'|"[^"]*"|[^\s'"])+)""",
    re.IGNORECASE,
)
IN_ADDRESS = re.compile(r"\b(?P<name>[a-z][\w+.-]*://)(?P<value>[^\s/?#'\"]+)@", re.IGNORECASE)  # https://user:password@host
# What issuers put in front of a token, wherever it stands: more of them are known where reports are redacted.
BARE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?P<name>hf_|gh[pousr]_|r8_|npm_|AKIA|dapi)(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}"
    r"|(?P<other>github_pat_|glpat-|sk-|sk_(?:live|test)_|gsk_|xox[abposr]-|AIza|pypi-|nvapi-|wandb_v1_|eyJ)(?=[\w.-]*\d)[\w.-]{20,})"
)
PLAIN = re.compile(r"|true|false|none|null|auto|[-+]?\d{1,3}|<.*|\$.*", re.IGNORECASE)  # --pad-token 0, $HF_TOKEN
MASK = "HIDDEN"


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds one, by its name, in an address, or by how it begins."""
    return bool((NAMED.fullmatch(name) and not PLAIN.fullmatch(value)) or IN_ADDRESS.search(value) or BARE.search(value))


def masked(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without secrets, and what gave these away: flags, variables, and how addresses and tokens begin."""
    shown: list[str] = []
    names: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if (found := WITH_VALUE.fullmatch(word)) and not PLAIN.fullmatch(found["value"]):
            names.append(found["name"])
            shown.append(f"{found['name']}={MASK}")
        elif before.startswith("-") and NAMED.fullmatch(before) and not word.startswith("-") and not PLAIN.fullmatch(word):
            names.append(before)
            shown.append(MASK)
        else:
            shown.append(_inside(word, names))
    return shown, list(dict.fromkeys(names))


def _inside(word: str, names: list[str]) -> str:
    def hide(found: re.Match[str]) -> str:
        if PLAIN.fullmatch(found["value"]) or found["value"] == MASK:
            return found[0]
        names.append(found["name"].rstrip("= \t\n"))
        return found[0].replace(found["value"], MASK)

    def hide_bare(found: re.Match[str]) -> str:
        begins = found["name"] or found["other"]
        names.append(f"{begins}...")
        return f"{begins}{MASK}"

    return BARE.sub(hide_bare, IN_ADDRESS.sub(hide, INSIDE.sub(hide, word)))
