"""Forms in which people, tools and files say a password or a token: what is left of each is counted, and what it costs other text.

`python -m benchmarks.secret_forms` counts both.  `left()` says of each form which values can still be read; `damage()` which lines
of source code were changed.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import sysconfig
import urllib.parse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.record import save
from benchmarks.technical_tokens import corpus
from reports.redact import Redactor, names_of
from reports.redact.rules import DATA
from reports.redact.source import structure_of

VALUES = [
    "hunter22",
    "correcthorse",
    "Tr0ub4dor&3",
    "p@ss-W0rd!",
    "83920174",
    "Sommer2024",
    "9f86d081884c7d65",
    "dGhpc0lzQVRlc3Q+/w==",
    "zQ9_xK2-Lm7",
]
TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"  # what the forms of tokens say: of the right length for its issuer
# A line, or a few; {} is the value.
LINES = [
    # variables
    "PGPASSWORD={}",
    "DB_PASS={}",
    "MYSQL_PWD={}",
    "REDISPASSWORD={}",
    "SMTP_PASS={}",
    "export DB_PASSWORD={}",
    'export DB_PASSWORD="{}"',
    "DB_PASSWORD='{}' python train.py",
    "env RABBITMQ_DEFAULT_PASS={} python train.py",
    "+ export AWS_SECRET_ACCESS_KEY={}",
    "set DB_PASSWORD={}",
    '$env:DB_PASSWORD = "{}"',
    "setenv DB_PASSWORD {}",
    "ENV DB_PASSWORD {}",
    "ARG NPM_TOKEN={}",
    "docker run -e DB_PASSWORD={} image",
    "docker build --build-arg NPM_TOKEN={} .",
    "#SBATCH --export=ALL,WANDB_API_KEY={}",
    "SERVICE_API_KEY {}",
    'DB_PASSWORD="${{DB_PASSWORD:-{}}}"',
    "DATABASE_PASSWORD={}",
    "ADMIN_PASS={}",
    "SECRET_KEY_BASE={}",
    "LDAP_BIND_PASSWORD={}",
    "AUTH_TOKEN={}",
    "KAGGLE_KEY={}",
    # programs
    "password = '{}'",
    'password = "{}"',
    'password = """{}"""',
    "'DB_PASS': '{}'",
    '"password": "{}",',
    "connect(user='me', password='{}')",
    "Namespace(batch=3, api_key='{}', lr=0.1)",
    "Config(token='{}', n=3)",
    'os.environ["API_KEY"] = "{}"',
    'os.environ.setdefault("API_KEY", "{}")',
    'os.getenv("DB_PASSWORD", "{}")',
    'monkeypatch.setenv("API_TOKEN", "{}")',
    'Password: "{}",',
    'setPassword("{}");',
    "password: '{}',",
    '#define DB_PASSWORD "{}"',
    'if password == "{}":',
    "if '{}' == password:",
    "$password = '{}';",
    "define('DB_PASSWORD', '{}');",
    "password => '{}'",
    'Sys.setenv(API_TOKEN = "{}")',
    'password := "{}"',
    "passwords = ['{}', 'other1']",
    '("Authorization", "Token {}")',
    # documents
    "password: {}",
    '  db_password: "{}"',
    "password: >-\n  {}",
    "password: |\n    {}",
    "secrets:\n  - {}\n  - other1",
    "secrets: [{}, other1]",
    "passwords:\n- '{}'",
    "- name: DB_PASSWORD\n  value: {}",
    "<password>{}</password>",
    '<user password="{}" name="me"/>',
    "<Password>\n  {}\n</Password>",
    '<input type="password" value="{}">',
    '{{"name": "API_TOKEN", "value": "{}"}}',
    '{{\\"password\\": \\"{}\\"}}',
    "db.password={}",
    "spring.datasource.password = {}",
    "[db]\npassword = {}",
    "aws_secret_access_key = {}",
    "//registry.example.com/:_authToken={}",
    "machine h login me password {}",
    "db.example.com:5432:runs:me:{}",
    "requirepass {}",
    "masterauth {}",
    "ansible_ssh_pass={}",
    "ansible_become_pass: {}",
    "password: &pw {}",
    '<add key="ClearTextPassword" value="{}" />',
    "password={}",
    # addresses
    "postgres://me:{u}@db.example.com/x",
    "redis://:{u}@cache:6379/0",
    "https://me:{u}@git.example.com/x.git",
    "https://x.example.com/?api_key={u}&n=3",
    "https://x.example.com/?access_token={u}",
    "jdbc:mysql://h/db?user=me&password={u}",
    "Server=h;User Id=me;Password={};",
    "DRIVER=x;UID=me;PWD={};",
    "host=h user=me password={} dbname=x",
    "amqp://me:{u}@mq:5672/",
    "mongodb+srv://me:{u}@c.example.com/x",
    # commands
    "curl -u me:{} https://x.example.com",
    "curl --user me:{} https://x.example.com",
    "wget --password={} https://x.example.com",
    "wget --http-password {} https://x.example.com",
    "sshpass -p {} ssh h",
    "sshpass -p{} ssh h",
    "mysql -u me -p{} runs",
    "mysqldump -p'{}' runs",
    "mongo -u me -p {} runs",
    "redis-cli -h h -a {} ping",
    "docker login -u me -p {} registry",
    "python x.py --password {}",
    "x --api-key={} --n 3",
    "ldapsearch -x -D cn=me -w {}",
    "openssl rsa -passin pass:{} -in k",
    "7z x -p{} a.7z",
    "unzip -P {} a.zip",
    "zip -P {} a.zip b",
    "gpg --passphrase {} x",
    "htpasswd -b file me {}",
    "smbclient -U me%{} //h/s",
    "lftp -u me,{} h",
    "wandb login {}",
    "echo 'me:{}' | chpasswd",
    "kinit --password {} me",
    # headers and talk
    "Authorization: Bearer {}",
    "Authorization: Token {}",
    "authorization: Basic {basic}",
    "X-Api-Key: {}",
    "x-auth-token: {}",
    "Cookie: session={}",
    "Set-Cookie: sid={}; Path=/",
    "password {}",
    "the password is {}",
    "Password: {}",
    "login with password {} failed",
    "passphrase: {}",
    "CREATE USER me IDENTIFIED BY '{}';",
    "ALTER ROLE me WITH PASSWORD '{}';",
    "argument --password: invalid value: '{}'",
    "password was '{}'",
    "using token {} for upload",
    "secret={}",
    "pwd: {}",
    "pw={}",
    "passwd {}",
    "credentials: me/{}",
    "api key: {}",
    "API-KEY: {}",
    "apikey={}",
]
NEEDS_A_KEY = {  # words that stand before ordinary words too, so that only what looks like a key is taken out behind them
    "using token {} for upload",
    "password {}",
    "the password is {}",
    "login with password {} failed",
    "passwd {}",
    "SERVICE_API_KEY {}",
    "setenv DB_PASSWORD {}",
    "ENV DB_PASSWORD {}",
    "Set-Cookie: sid={}; Path=/",
    "KAGGLE_KEY={}",
    "requirepass {}",
    "masterauth {}",
    "wandb login {}",
}
Encoding = Callable[[str], str]
ENCODED: dict[str, Encoding] = {
    "base64": lambda text: base64.b64encode(f"me:{text}".encode()).decode(),
    "base64 of a middle": lambda text: base64.b64encode(f"x={text};y".encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(f"me2:{text}".encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "capital hex": lambda text: text.encode().hex().upper(),
    "per cent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "some per cent": lambda text: urllib.parse.quote(text, safe="").replace("_", "%5F").replace("B", "%42"),
    "cut by a colour": lambda text: f"{text[:9]}\x1b[0m\x1b[32m{text[9:]}",
    "cut by a colour in JSON": lambda text: f"{text[:9]}\\u001b[0m{text[9:]}",
    "cut by a colour in a repr": lambda text: f"{text[:9]}\\x1b[1;32m{text[9:]}",
}


def redacted(text: str, name: str = "out.log") -> str:
    redactor = Redactor(names_of([], []))
    data = text.encode()
    redactor.learn(name, lambda: io.BytesIO(data))
    return b"".join(redactor.redact(name, lambda: io.BytesIO(data))).decode()


def said(line: str, value: str) -> str:
    """The line with the value in it."""
    basic = base64.b64encode(f"me:{value}".encode()).decode()
    filled = line.replace("{u}", urllib.parse.quote(value, safe="")).replace("{basic}", basic).replace("{}", value)
    return filled.replace("{{", "{").replace("}}", "}")


def left() -> dict[str, list[str]]:
    """For each form the values that can still be read, alone among other lines; a form without any is left out."""
    found: dict[str, list[str]] = {}
    for line in LINES:
        for value in VALUES:
            if line in NEEDS_A_KEY and not is_keylike(value):
                continue
            after = redacted(f"step 1 loss=2.31\n{said(line, value)}\nstep 2 loss=2.30\n")
            shown = (value, urllib.parse.quote(value, safe=""), base64.b64encode(f"me:{value}".encode()).decode())
            if any(form in after for form in shown) or "step 2 loss=2.30" not in after:
                found.setdefault(line, []).append(value)
    for name, encoded in ENCODED.items():
        after = redacted(f"step 1\nsent {encoded(TOKEN)} to x\nstep 2\n")
        if encoded(TOKEN) in after:
            found.setdefault(name, []).append(TOKEN)
    return found


def count() -> int:
    """How many pairs of a form and a value are tried."""
    needing = sum(line in NEEDS_A_KEY for line in LINES)
    return len(LINES) * len(VALUES) - needing * sum(not is_keylike(value) for value in VALUES) + len(ENCODED)


def is_keylike(value: str) -> bool:
    """Return True for letters and digits together."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def sources() -> list[Path]:
    """Source code of the standard library that speaks of no people: its examples of addresses and passwords would be redacted rightly."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    return [path for path in sorted(stdlib.glob("*.py")) if "@" not in path.read_text(errors="replace")]


def damage(paths: list[Path]) -> list[tuple[str, str, str]]:
    """File, line before and line after, of each line of source that was changed."""
    changed = []
    for path in paths:
        before = path.read_text(errors="surrogateescape")
        after = redacted(before, path.name)
        pairs = zip(before.splitlines(), after.splitlines(), strict=True)
        changed += [(path.name, one.strip(), other.strip()) for one, other in pairs if one != other]
    return changed


def main() -> None:
    found, paths = left(), sources()
    changed = damage(paths)
    technical = {name: _words_lost(text, redacted(text, name)) for name, text in corpus().items()}
    figures = {
        "forms": len(LINES) + len(ENCODED),
        "values": len(VALUES),
        "tried": count(),
        "left": sum(map(len, found.values())),
        "left_by_form": found,
        "rules_of_gitleaks": len(json.loads(DATA.read_text(encoding="utf-8"))),
        "rules_load_ms": _load_ms(),
        "technical_words_lost": sum(technical.values()),
        "source_files": len(paths),
        "source_lines_changed": len(changed),
        "source_structures_changed": sum(_structure_differs(path) for path in paths),
        "changed": changed[:20],
    }
    save("secret_forms", {**figures, "wanted": {"left": 0, "technical_words_lost": 0, "source_structures_changed": 0}})


def _words_lost(before: str, after: str) -> int:
    return (Counter(before.split()) - Counter(after.split())).total()


def _structure_differs(path: Path) -> bool:
    text = path.read_text(errors="surrogateescape")
    return structure_of(text.encode(errors="surrogateescape")) != structure_of(redacted(text, path.name).encode(errors="surrogateescape"))


def _load_ms() -> float:
    """What a fresh interpreter needs for the rules beside our own forms."""
    program = (
        "import reports.redact, time; from reports.redact import rules; began = time.perf_counter(); rules.has_keyword('x'); "
        "print(1000 * (time.perf_counter() - began))"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout for _ in range(5)]
    return round(min(map(float, runs)), 1)


if __name__ == "__main__":
    main()
