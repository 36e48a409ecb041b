"""Rules of gitleaks as data of ours: `python -m benchmarks.gitleaks_rules PATH/gitleaks.toml` writes reports/redact/gitleaks.json.

Their patterns are of Go's RE2; those of Python want flags for the rest of a group in another form."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "reports" / "redact" / "gitleaks.json"
SHORTEST_KEYWORD = 3  # a shorter one is in every other word
# Rules that our own forms replace, or that technical text would suffer from.
LEFT_OUT = {
    "generic-api-key": "every long word behind a common name",
    "sourcegraph-access-token": "every git commit beside that name",
    "vault-service-token": "attributes of 24 letters behind `s.`",
    "kubernetes-secret-yaml": "takes time by the square of the text",
    "hashicorp-tf-password": "meant for files of Terraform only",
    "curl-auth-header": "over several lines", "curl-auth-user": "over several lines",
    "linear-client-secret": "a word of neural networks",
    "jwt": "ours", "jwt-base64": "ours", "private-key": "ours", "twilio-api-key": "ours",
    "azure-ad-client-secret": "ours",
    "pkcs12-file": "a name of a file", "nuget-config-password": "ours",
}  # fmt: skip
NO_KEYWORDS = {"intra"}  # as in intra-op


def main() -> None:
    import tomllib  # type: ignore[import-not-found,unused-ignore]  # of Python 3.11

    source = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rules = [rule for rule in source["rules"] if rule["id"] not in LEFT_OUT and "regex" in rule]
    found = [_converted(rule) for rule in rules]
    TARGET.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found)} of {len(source['rules'])} rules in {TARGET}")


def _converted(rule: dict[str, Any]) -> dict[str, Any]:
    pattern = _with_scoped_flags(rule["regex"].replace(r"\z", r"\Z").replace("[:alnum:]", "A-Za-z0-9"))
    re.compile(pattern, re.ASCII)
    keywords = [word for word in rule["keywords"] if len(word) >= SHORTEST_KEYWORD and word not in NO_KEYWORDS]
    if not keywords:
        raise ValueError(f"rule {rule['id']} has no keyword of {SHORTEST_KEYWORD} letters; leave it out, or write a form of our own")
    numbers = {"entropy": rule.get("entropy", 0), "group": rule.get("secretGroup", 0)}
    return {"id": rule["id"], "keywords": keywords, "pattern": pattern, **numbers}


def _with_scoped_flags(pattern: str) -> str:
    """`a(?i)b` as `a(?i:b)`: the flag holds to the end of the group it stands in."""
    out: list[str] = []
    to_close = [0]
    position, in_class = 0, False
    while position < len(pattern):
        if pattern[position] == "\\":
            out.append(pattern[position : position + 2])
            position += 2
            continue
        if not in_class and pattern.startswith("(?i)", position):
            out.append("(?i:")
            to_close[-1] += 1
            position += 4
            continue
        letter = pattern[position]
        if in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
            if pattern.startswith("[]", position) or pattern.startswith("[^]", position):
                skip = 2 if pattern[position + 1] == "]" else 3
                out.append(pattern[position : position + skip])
                position += skip
                continue
        elif letter == "(":
            to_close.append(0)
        elif letter == ")":
            out.append(")" * to_close.pop())
        out.append(letter)
        position += 1
    return "".join(out) + ")" * to_close.pop()


if __name__ == "__main__":
    main()
