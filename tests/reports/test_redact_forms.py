"""Forms of secrets: each form with each value goes, and neither technical text nor source code is touched for it."""

from __future__ import annotations

import pytest

from benchmarks.secret_forms import ENCODED, LINES, VALUES, count, damage, left, redacted, sources
from reports.redact.rules import DATA, entropy_of, has_keyword, ruled


def test_nothing_is_left_of_any_form_with_any_value() -> None:
    assert len(LINES) >= 100 and len(VALUES) >= 9 and count() > 1000
    assert left() == {}


@pytest.mark.parametrize("way", ENCODED)
def test_an_encoded_text_that_is_no_key_stays(way: str) -> None:
    text = f"step 1\nread {ENCODED[way]('the weights of layer 3 were saved')} of 5\n"
    assert redacted(text) == text or way.startswith("base64")


@pytest.mark.parametrize(
    "line",
    [
        "password authentication failed for user root",
        "the token was not found and the password is wrong",
        "docker run -u 1000:1000 -p 8080:80 image",
        "curl -u is not supported",
        "python train.py -p 3 -w 4 -P 5",
        "tokens: [1, 2, 3] keys: [4, 5]",
        "key_words = ['a', 'b'] token_ids = [17, 4]",
        "zip -r out.zip runs -x secret",
        "cp -p a b; mkdir -p runs/mysql -p",
        "forward_pass=3 first_pass: done n_pass=12345678 BYPASS=12345678",
        "processed token 83920174 of 90000000 tokens",
        "tokenizer.json: special_tokens_map: {'pad_token': '<pad>'}",
        "file.c:1234:10:error:x",
        "linear.weight=0.25 Linear(in_features=512) intra-op parallelism facebook/bart-large-cnn",
        "<keys>\n  <n>3</n>\n</keys>",
        "assert key == 'value' and mode == 'token'",
        "id: pad value: 3 name: hidden_size value: 4096",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "7z x archive.7z -o/tmp",
        "progress 12%2F34 100%|##| 12/12",
        "MAX_TOKENS 512 NUM_KEYS 8 PRIMARY_KEY id",
        "set_token(token) setToken(tok)",
    ],
)
def test_a_line_that_only_looks_like_a_form_stays(line: str) -> None:
    assert redacted(f"{line}\n") == f"{line}\n"


def test_no_structure_of_a_source_changes_and_hardly_a_text() -> None:
    assert len(damage(sources()[:12])) <= 1


def test_the_rules_of_gitleaks_are_there_with_their_licence_and_find_what_they_are_for() -> None:
    assert "MIT License" in DATA.with_name("GITLEAKS_LICENSE").read_text()
    for kind, key in (("sentry-user-token", f"sntryu_{'0123456789abcdef' * 4}"), ("fastly-api-token", f"fastly_key = '{'aB3-' * 8}'")):
        assert [hit.kind for hit in ruled(f"using {key} now\n")] == [kind]
        assert has_keyword(key.lower())
    assert list(ruled("epoch 3: 12%| | 12/400 [00:12<01:02, 46.1it/s, loss=2.31]\n")) == []
    assert entropy_of("aaaa") == 0 and entropy_of("abcd") == 2
