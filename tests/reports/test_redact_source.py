"""Redaction of source and documents: code keeps its structure, what has to be parsed is parsed after it as before."""

from __future__ import annotations

import ast
import json
import random
import re
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from benchmarks.planted_secrets import KINDS, core, value
from reports.redact.hits import Hit
from reports.redact.source import names_in, parts_of, structure_of, within
from tests.reports.test_redact import GITHUB, redacted, together

ROOT = Path(__file__).parents[2]
STDLIB = Path(sysconfig.get_paths()["stdlib"])
SOURCES = [ROOT / name for name in ("reports/folder.py", "reports/redact/named.py", "trainer/train.py", "trainer/config.py")] + [
    STDLIB / name for name in ("dataclasses.py", "netrc.py", "getpass.py", "smtplib.py", "urllib/request.py", "queue.py")
]

CODE = [
    "Path.home().joinpath(x)", "threading.local()", "self.private = Layer.internal", "import trainer.local as local",
    "from settings.home import lan", "@registry.internal\ndef f(): pass", "class A(nodes.lan): x: types.priv = gpu7.corp",
    "login(password=get_password(), token=args.token, user=data_loader.user)", "def f(password: str = None, *, api_key=KEY): pass",
    "if user == model and host == data_loader: secret = other", "f'{Path.home()}/{self.private!r:>{gpu7.lan}}'",
    "f'''{x.local:{password.internal}}''' 'a' f'{b.home}'", "x = {data_loader: model.local}[host.home]", "lambda token: token.private",
    "password = passwords[0]\ntoken, secret = a.private, b.private", "f'Cookie: session={x}; token={y.home}'",
    "parser.add_argument('--password', '-p', help='the password')", "fields = ['password', 'username', 'token', 'hostname']",
    "headers = {'Authorization': 'Bearer ' + token, 'Cookie': f'a={b}'}", "print('token:', token, 'x')", "n: int = 12345678; pwd = 123456",
    "m = b'x' + rb'\\d' ; d = 'C:\\\\Users' r'\\x' '\\N{DASH}'", "os.environ['DB_PASSWORD']", "x = password or 'unset'",
]  # fmt: skip
NAMES = {"users": ("data_loader", "Layer", "token"), "hosts": ("model", "registry.internal", "gpu7.lan")}


@pytest.mark.parametrize("code", CODE)
def test_code_stays_as_it_is_whatever_users_and_hosts_are_called(code: str) -> None:
    assert redacted(f"{code}\n", "program/train.py", **NAMES) == f"{code}\n"  # type: ignore[arg-type]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_whole_source_keeps_its_structure_and_loses_what_is_planted_in_its_texts(path: Path) -> None:
    """Users and hosts are called as names in it are, and as attributes."""
    text = path.read_text()
    chance = random.Random(path.name)
    names = sorted(name for name in names_in(text) if len(name) > 4)
    secrets = [(variable, value(kind, chance)) for kind, (variable, _) in KINDS.items()]
    planted = text + "".join(
        f'{variable.lower()} = "{secret}"\nlog(b"{variable}={secret}", f"{{self.private}} {variable}={secret} {{x}}")  # {secret}\n'
        for variable, secret in secrets
    )
    after = redacted(planted, path.name, users=tuple(names[::3]), hosts=tuple(f"{name}.local" for name in names[::4]))
    assert structure_of(after.encode()) == structure_of(planted.encode()) is not None
    assert [secret for _, secret in secrets if core(secret) in after] == []
    assert names_in(after) == names_in(planted)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_text_of_a_source_without_secrets_is_touched(path: Path) -> None:
    text = path.read_text()
    lost = [(one, other) for one, other in zip(text.splitlines(), redacted(text, path.name).splitlines(), strict=True) if one != other]
    examples = "@|/home/|Users|passwd='geheim|10\\.|AccountKey|SharedAccessKey|_session=|sha256~|Private-Lines|SECRET-KEY|atlasv1"
    assert [pair for pair in lost if not re.search(examples, pair[0])] == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_taken_out_of_the_texts_the_structure_stays(data: st.DataObject) -> None:
    """Hits at any places, also across quotes and inside escapes and braces."""
    text = (ROOT / "benchmarks" / "planted_secrets.py").read_text() + "\n".join(CODE)
    text += "\nx = '\\x41\\'\\u00e9' b'\\'' f'{{a}}{b}\\N{DASH}'\n"
    parts = parts_of(text)
    assert parts is not None
    begins = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=40, unique=True).map(sorted))
    pairs = zip(begins, [*begins[1:], len(text)], strict=True)
    hits = [Hit(start, min(end, start + data.draw(st.integers(1, 80))), "x") for start, end in pairs]
    found = [(hit, part) for hit, part in within(text, [hit for hit in hits if hit.start < hit.end], parts) if hit.start < hit.end]
    position, pieces = 0, []
    for hit, _ in found:
        pieces += [text[position : hit.start], "REDACTED-x-1"]
        position = hit.end
    after = "".join([*pieces, text[position:]])
    assert structure_of(after.encode()) == structure_of(text.encode())


def test_the_structure_tells_another_name_number_or_order_and_no_other_text() -> None:
    one = structure_of(b"x = f(a.local, 'text', f'{b} text', 3)  # comment\n")
    assert one == structure_of(b"x = f(a.local, \"\", f'other{b}', 3)\n")
    others = (b"x = f(a.home, '', f'{b}', 3)", b"x = f(a.local, '', f'{c}', 3)", b"x = f(a.local, '', f'{b}', 4)", b"x = f(a.local, '', 3)")
    for other in others:
        assert structure_of(other) not in (one, None)
    assert structure_of(b"REDACTED-host-2()") != structure_of(b"Path.home()") and structure_of(b"x = = 1") is None


def test_the_structure_has_the_digest_that_every_version_of_python_gives() -> None:
    found = structure_of(b"async def f(a: int, /, *b, c=1, **d): return [x async for x in f'{a!r:>{b}}' 'c' if x is None]\n")
    assert found is not None and found.startswith("d3baa47d06c98575")


def test_a_key_in_a_file_that_is_no_source_goes_and_one_that_is_a_name_too() -> None:
    assert redacted(f"def f(:\n  {GITHUB}\n", "a.py") == "def f(:\n  REDACTED-github-token-1\n"
    assert redacted(f"x = {GITHUB}\n", "a.py") == "x = REDACTED_github_token_1\n"


def test_a_script_without_a_suffix_is_a_source_by_its_first_line() -> None:
    script = "#!/usr/bin/env python3\nimport threading\nx = threading.local\n"
    assert redacted(script, "program/train", hosts=("threading.local",)) == script


# ------------------------------------------------------------------ in logs, without the source
@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: 'Layer' object has no attribute 'internal' in Layer.internal", "    self.private = threading.local()",
        "File \"/srv/x.py\", line 3, in Path.home", "max_tokens=3 print(max) data.local[0] torch.distributed.local(x) np.random.private=1",
        "ModuleNotFoundError: No module named 'trainer.local'", "logger trainer.internal: step 3",
    ],
)  # fmt: skip
def test_attributes_in_a_log_are_no_hosts(line: str) -> None:
    assert redacted(f"{line}\n", users=("max", "print")) == f"{line}\n"


@pytest.mark.parametrize("host", ["johns-mbp.home", "gpu7.lan", "db-3.internal", "node1.local", "login.cluster.local", "x.corp"])
def test_hosts_of_internal_domains_go(host: str) -> None:
    assert host not in redacted(f"step 1 of {host} is slow\n")


def test_hosts_without_a_number_go_where_the_text_calls_them_hosts() -> None:
    for text in ("connected to nas.local", "http://wiki.internal/x", "ssh me@proxy.private", "nas.home:2049 is down", "host=printer.local"):
        assert not re.search("nas|wiki|proxy|printer", redacted(f"{text}\n")), text


# ------------------------------------------------------------------ documents
DOCUMENTS = {
    "a.json": '{"password": 12345678, "token": null, "api_key": "ab12cd34ef", "n": [1, 2.5, true], "secret": 12.75, "user": "alice"}\n',
    "a.jsonl": '{"password": 12345678}\n{"secret": "a\\"b\\\\c 12x", "text": "login with password=ab\\u00e912cd now"}\n',
    "a.yaml": "password: &x hunter22\nother: *x\nsecret: 12\ntoken: {a: 1}\nuser: alice\ndb_password: >-\n  hunter23\nlist: [a, b]\n",
    "a.toml": "password = 12345678\ntoken = 'abc12345'\n[a.local]\nx = 1\npwd = \"a\\\"b12\"\n",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_one_after_redaction_with_the_same_keys(name: str) -> None:
    before = DOCUMENTS[name]
    after = redacted(before, name, users=("alice",))
    for gone in ("12345678", "ab12cd34ef", "hunter22", "hunter23", "12.75", "alice", "abc12345"):
        assert gone not in after, gone
    if name == "a.yaml":
        reader = YAML(typ="safe", pure=True)
        assert reader.load(after).keys() == reader.load(before).keys()
    elif name == "a.toml":
        if sys.version_info >= (3, 11):
            import tomllib

            assert tomllib.loads(after).keys() == tomllib.loads(before).keys()
    else:
        lines = zip(before.splitlines(), after.splitlines(), strict=True)
        assert all(len(json.loads(one)) == len(json.loads(other)) for one, other in lines)


def test_a_name_that_a_packed_source_uses_is_redacted_only_where_something_says_what_it_is(tmp_path: Path) -> None:
    from reports.redact import Redactor, names_of

    redactor = Redactor(names_of(["data_loader"], ["model"]))
    source = tmp_path / "data_loader.py"
    source.write_text("import data_loader\nfrom model import x\n")
    redactor.spare_names("program/data_loader.py", lambda: source.open("rb"))
    assert redactor.text("file names", "program/data_loader.py") == "program/data_loader.py"
    assert redactor.text("out.log", "data_loader.py of /home/data_loader/x") == "data_loader.py of /home/REDACTED-user-1/x"


def test_sources_of_one_package_share_tokens_with_its_logs() -> None:
    files = together({"program/a.py": f"key = '{GITHUB}'\n", "out.log": f"used {GITHUB}\n"})
    token = ast.literal_eval(files["program/a.py"].partition("= ")[2].strip())
    assert files["out.log"] == f"used {token}\n"
