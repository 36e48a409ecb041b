"""Values that a name gives away: variables, keys of JSON and YAML, options of a command line, headers, services."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from reports.redact.entropy import looks_random
from reports.redact.hits import Hit
from reports.redact.shapes import tree

NEAR = 200  # characters before a name that may say what the name is
Strength = int  # 0: no secret, 1: only when the value looks like a key, 2: whatever the value

_SERVICES = {
    "adafruit", "adobe", "airtable", "algolia", "alibaba", "asana", "atlassian", "beamer", "bitbucket", "bittrex", "cloudant",
    "cloudflare", "codecov", "cohere", "coinbase", "comet", "confluence", "confluent", "contentful", "datadog", "discord", "dropbox",
    "droneci", "elastic", "etsy", "facebook", "fastly", "finicity", "finnhub", "flickr", "freshbooks", "gitter", "gocardless",
    "grafana", "heroku", "hubspot", "intercom", "jfrog", "artifactory", "jira", "kraken", "kucoin", "launchdarkly", "linear",
    "linkedin", "mailchimp", "mailgun", "mapbox", "mattermost", "meraki", "messagebird", "mlflow", "neptune", "netlify", "newrelic",
    "relic", "okta", "openai", "pinecone", "plaid", "privateai", "rapidapi", "sendbird", "sentry", "snyk", "softlayer", "sonar",
    "squarespace", "sumo", "sumologic", "telegram", "travis", "twilio", "twitch", "twitter", "typeform", "wandb", "yandex", "zendesk",
    "contribsys", "ibm", "kaggle",
}  # fmt: skip
CLUES = re.compile(
    tree(["pass", "pwd", "pw", "secret", "token", "key", "cred", "auth", "cookie", "session", "signature", "webhook", "dsn", "connection",
          "licen", "login", *_SERVICES])
)  # fmt: skip
NAMES = re.compile(r"[\w.$-]+")
_NAME_LEFT = re.compile(r"[\w.$-]{0,80}\Z")
_NAME_RIGHT = re.compile(r"[\w.$-]{0,80}")
_AFTER = re.compile(
    r"""(?P<sep>["'`\\\]]{0,4}[ \t]{0,8}(?:=>|:?={1,3}|:(?!:)|,|[ \t])[ \t]{0,8})"""
    r"""(?:[&!][\w/!-]+[ \t]+)?(?P<scheme>(?:Bearer|Basic|Token|Digest)[ ]+)?"""
    r"""(?:(?P<open>[bru@]{0,2}(?:\"\"\"|'''|\\?"|\\?'|`))(?P<quoted>(?:\\\\.|\\.|(?!(?P=open))[^\n\\])*?)(?:(?P=open)|(?=\n)|$)|(?P<bare>[^\s"'`,;<>\\(){}\[\]]+))""",
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_STRONG = {
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "token", "credential", "credentials", "creds",
    "apikey", "authtoken", "accesskey", "secretkey", "privatekey", "authorization", "cookie", "accesstoken", "refreshtoken",
    "userpass", "dbpass", "pw", "passwords", "passphrases", "passwort", "requirepass", "masterauth",
}
_GLUED = re.compile(r".+(?:passwords?|passwd|passphrase|apikey|api_?token|authtoken|accesstoken|secretkey|accesskey)")
_ACCOUNTS = {
    "db", "database", "admin", "root", "smtp", "mail", "email", "ftp", "ssh", "mysql", "pg", "postgres", "redis", "rabbitmq", "default",
    "become", "bind", "ldap", "sudo", "http", "proxy", "vnc", "wifi", "ansible", "mq", "amqp", "mongo", "su", "svc",
}  # fmt: skip  # fmt: skip
_STRONG_BEFORE_KEY = {
    "api", "access", "secret", "private", "encryption", "signing", "master", "account", "shared", "license", "auth", "client",
    "storage", "service", "write", "read", "subscription", "app", "application", "consumer", "deploy", "integration", "server",
    "admin", "user", "ssh",
}  # fmt: skip
_WEAK = {"key", "auth", "pass", "sig", "signature", "session", "sessionid", "sid", "sas", "dsn", "webhook", "cred", "license", "login"}
_NOT_A_VALUE = {
    "file", "path", "dir", "folder", "url", "uri", "endpoint", "host", "port", "name", "names", "length", "len", "size", "count",
    "type", "types", "ttl", "expiry", "expires", "expiration", "limit", "index", "idx", "num", "class", "error", "errors", "mode",
    "format", "loss", "version", "policy", "prefix", "suffix", "provider", "method", "fn", "func", "required", "enabled", "valid",
    "ids", "id", "rate", "time", "s", "sec", "per", "usage", "seen", "total", "emb", "embedding", "embeddings", "embed", "dropout",
    "dim", "mask", "masks", "labels", "module",
}  # fmt: skip
_TEXT_TOKENS = {
    "pad", "eos", "bos", "unk", "cls", "sep", "mask", "special", "num", "n", "max", "min", "total", "per", "count", "next", "prev",
    "new", "image", "stop", "start", "end", "input", "output", "prompt", "completion", "first", "last", "vocab", "word", "sub",
    "decoder", "eot", "class", "register", "csrf", "text", "byte", "each", "by", "unexpected", "current", "tokens", "of",
}  # fmt: skip
_HASHES = {
    "sha", "sha1", "sha256", "md5", "hash", "digest", "checksum", "commit", "rev", "revision", "head", "build", "buildid", "uuid",
    "inode", "etag", "fingerprint", "crc", "version", "program", "tree", "blob", "file", "layer", "trace", "span", "run", "job",
    "container", "cgroup", "device", "gpu", "boot", "machine", "cache", "primary", "foreign", "sort", "public", "pub", "cell", "id",
    "attempt", "path",
}  # fmt: skip
_TRIVIAL = {
    "true", "false", "none", "null", "nil", "yes", "no", "on", "off", "undefined", "unset", "empty", "default", "str", "string", "int",
    "bool", "required", "optional", "missing", "invalid", "expired", "redacted", "changeme", "example", "is", "not", "was", "and",
    "or", "for", "in", "bytes", "value", "values", "bearer", "basic", "digest", "token",
}  # fmt: skip
_PLACEHOLDER = re.compile(
    r"\$\{?\w*\}?|\{\{.*|<.*|%\w+%|\*\w*|\*+|[xX.]+|-+|REDACTED\b.*|(?:os\.)?(?:environ|getenv)\b.*|\w+\(.*|self\..*|args\..*|config\..*"
    r"|%\(?\w*\)?[sdr]|\$\(.*\)|`.*`"
)
_FILLED_IN = re.compile(r"\{[A-Za-z_][\w.]*(?:\(\))?(?:![rsa])?(?::[^{}]*)?\}|\{\}|\{\d\}|%\(?\w*\)?s|\$\{\w+\}")
SHORTEST_BESIDE = 6  # characters of a value beside what is filled in at run time
_KEYLIKE = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w+/=.:~!@#$%^&*-]{12,}")
_SERVICE_VALUE = re.compile(r"(?=[^\d]*\d)(?=[\d_:=+/.-]*[A-Za-z])[\w:=+/.~-]{14,}")
_APART = re.compile(r"(?:Bearer|Basic|Token|Digest) .{4,}|(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{8,}")
_BETWEEN_TEXTS = re.compile(r"\s*[,)\]}+%]")  # what stands between two texts of a program: print("token:", x, "text")
_PATH = re.compile(r"(?:~|\.{1,2})?/[^/\s]+/.*|~?/[\w.-]*|[A-Za-z]:\\.*|\.{1,2}/.*|[\w.-]+(?:/[\w.-]+)+\.\w{1,5}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{32,}={0,2}")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[+-]?(?=[.,]?\d)\d{0,15}[.,]?\d*(?:[eE][+-]?\d+)?[a-zA-Z%]{0,3}|\d{1,2}(?::\d\d)+(?:\.\d+)?")
_LONG_NUMBER = re.compile(r"\d{8,}")  # a key may be one
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s@]*", re.IGNORECASE)


def named(text: str) -> Iterator[Hit]:
    """Values after a name that gives them away."""
    lowered, seen = text.lower(), -1
    if len(lowered) != len(text):  # a few letters grow when they are made small: positions must agree
        lowered = "".join(character.lower() if len(character.lower()) == 1 else character for character in text)
    for clue in CLUES.finditer(lowered):
        if clue.start() < seen:
            continue
        right = _NAME_RIGHT.match(text, clue.start())
        seen = right.end() if right else clue.end()
        left = _NAME_LEFT.search(text, max(0, clue.start() - 80), clue.start())
        start = left.start() if left else clue.start()
        name = text[start:seen]
        if strength_of(name) and (found := _AFTER.match(text, seen)):
            yield from _value(text, start, name, found)


def _value(text: str, start: int, name: str, found: re.Match[str]) -> Iterator[Hit]:
    group = "bare" if found["bare"] is not None else "quoted"
    value, sep = found[group], found["sep"]
    if group == "quoted" and _BETWEEN_TEXTS.match(value):
        return
    strength = strength_of(name)
    if text[max(0, start - 2) : start + 1].startswith("${") and value.startswith("?"):  # what a shell says of an empty variable
        return
    if group == "bare" and "==" in sep and value[:1].isdigit():  # a pinned package
        return
    if sep.strip("\"'`\\] \t") in ("", ",") and not _may_be_apart(text, start, name, sep, found):
        return
    if strength == 2 and group == "bare" and not found["scheme"] and sep.strip() and _is_prose(text, start, name, sep, value):
        return
    if value.istitle() and sep.strip() == ":" and re.match(r" [a-z]", text[found.end() : found.end() + 2]):  # "password: The password of"
        return
    begin, end = found.span(group)
    if group == "bare" and text[end : end + 1] == "{":  # the text before a place to fill in, as in f"session={name}"
        return
    if is_secret(value, strength, name):
        kind = "password" if re.search(r"pass|pwd", name, re.IGNORECASE) else "named-secret"
        yield Hit(begin, end, kind)


def _may_be_apart(text: str, start: int, name: str, sep: str, found: re.Match[str]) -> bool:
    """A value after a blank or a comma: of an option (`--password x`, `"--password", "x"`), of netrc, or of a quoted header."""
    if "," in sep and (found["open"] is None or sep[:1] not in "\"'"):
        return False
    if name.startswith("-"):
        return not (found["quoted"] or found["bare"]).startswith("-")  # ("--password", "-p")
    if "," in sep and name.isupper() and "_" in name:  # os.getenv("DB_PASSWORD", "..."), and no list of variables
        return not found["quoted"].isupper()
    if "," in sep:  # ("Authorization", "Basic ..."), and no list of field names
        return bool(_APART.fullmatch(found["quoted"]))
    return name in ("password", "login") and bool(re.search(r"\b(?:machine|login)\s+\S+", _line_before(text, start)))


@functools.lru_cache(maxsize=4096)
def strength_of(name: str) -> Strength:
    """How surely what stands under that name is a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or name.strip("-") in ("PWD", "OLDPWD") or words[-1] in _NOT_A_VALUE:
        return 0
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    while last.isdigit() and len(words) > 1:
        words.pop()
        last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "token" in words and set(words) & _TEXT_TOKENS:
        return 0
    if last == "pass" and set(words) & _ACCOUNTS:
        return 2
    if last in _STRONG or _GLUED.fullmatch(last):
        return 2
    if (last == "key" and before in _STRONG_BEFORE_KEY) or (last == "string" and before == "connection"):
        return 2
    if "key" in words[-2:] and set(words) & (_STRONG | _SERVICES):
        return 2
    if set(words) & _HASHES:
        return 0
    return 1 if set(words) & (_WEAK | _STRONG | _SERVICES) else 0


def is_secret(value: str, strength: Strength, name: str = "") -> bool:
    """Whether a value under a name of that strength is to be redacted."""
    value = value.strip()
    if strength == 0 or not value or value.lower() in _TRIVIAL or _PLACEHOLDER.fullmatch(value):
        return False
    if _FILLED_IN.search(value) and len(_FILLED_IN.sub("", value).strip()) < SHORTEST_BESIDE:
        return False
    if _is_path(value) or _NUMBER.fullmatch(value) or _URL.fullmatch(value):
        is_long = bool(_LONG_NUMBER.fullmatch(value)) or (len(value) > 3 and _is_password(name))
        return strength == 2 and "/" not in value and is_long
    if name.lower().endswith("cookie") and "=" not in value and not _KEYLIKE.fullmatch(value):
        return False
    if strength == 2:
        return len(value) > 1
    return bool(_KEYLIKE.fullmatch(value) or _SERVICE_VALUE.fullmatch(value)) and not _has_words(value)


def _is_path(value: str) -> bool:
    """Not a key of base64 that begins with a slash, or has a few: it stays random without them."""
    if not _PATH.fullmatch(value) or looks_random(value):
        return False
    return not (_BASE64.fullmatch(value) and looks_random(value.replace("/", "")))


def _is_password(name: str) -> bool:
    return bool(re.search(r"pass|pwd|secret", name, re.IGNORECASE))


def _has_words(value: str) -> bool:
    """A name with a number in it, such as `bert-base-v2`; a key changes between letters and digits more often."""
    if len(re.findall(r"\d(?=[A-Za-z])|[A-Za-z](?=\d)", value)) >= 5:
        return False
    words = [word for word in re.findall(r"[a-z]{4,}", value.lower()) if re.search("[aeiou]", word)]
    return sum(map(len, words)) * 2 > len(value)


def _is_prose(text: str, start: int, name: str, sep: str, value: str) -> bool:
    """`unexpected token: end`: a plain word after a colon within a sentence, where a key of YAML would begin its line."""
    if (
        not value.strip(".").isalpha()
        or len(value) > 20
        or sep.strip()[-1:] not in (":", "")
        or name.isupper()
        or "_" in name
        or name[0] == "-"
    ):
        return False
    return bool(_line_before(text, start).strip(" -\"'"))


def _line_before(text: str, start: int) -> str:
    """Return what stands before a name on its line, but no more than the last `NEAR` characters: a line may be a megabyte."""
    near = text[max(0, start - NEAR) : start]
    return near[near.rfind("\n") + 1 :]
