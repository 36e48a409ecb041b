"""Secrets that the words around them give away: options of known commands, elements, lists, blocks, sentences, encoded keys."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator

from reports.redact.hits import Hit
from reports.redact.named import is_secret, strength_of
from reports.redact.rules import ruled
from reports.redact.shapes import shaped

_VALUE = r"(?:'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\"|;&]+))"
# a word that must be there at all, and the form; its groups are the secret
_COMMANDS = [
    ("curl", rf"\bcurl\b[^\n|]{{0,400}}?\s(?:-u|--user|--proxy-user)[ =]?['\"]?[^\s:'\"]{{1,80}}:{_VALUE}"),
    ("sshpass", rf"\bsshpass\s+-p\s?{_VALUE}"),
    ("mysql", rf"\bmysql(?:dump|admin|import|sh)?\b[^\n|]{{0,200}}?\s-p{_VALUE}"),
    ("mariadb", rf"\bmariadb(?:-dump)?\b[^\n|]{{0,200}}?\s-p{_VALUE}"),
    ("mongo", rf"\bmongo(?:sh|dump|export)?\b[^\n|]{{0,200}}?\s-p\s{_VALUE}"),
    ("redis-cli", rf"\bredis-cli\b[^\n|]{{0,200}}?\s-a\s{_VALUE}"),
    (" login", rf"\b(?:docker|podman|helm|skopeo|az|oc)\b[^\n|]{{0,80}} login\b[^\n|]{{0,200}}?\s-p\s{_VALUE}"),
    ("wandb login", r"\bwandb login (?:--\w+ )*(?!-)(?=\S*\d)(\S{6,})"),
    ("ldap", rf"\bldap\w+\b[^\n|]{{0,200}}?\s-w\s{_VALUE}"),
    ("pass:", r"\s-pass(?:in|out)? pass:(\S+)"),
    ("7z", rf"\b7z\w? \w\b[^\n|]{{0,200}}?\s-p{_VALUE}"),
    ("zip", rf"\b(?:un)?zip\b[^\n|]{{0,100}}?\s-P\s{_VALUE}"),
    ("htpasswd", rf"\bhtpasswd\s+-\w*b\w*\s+\S+\s+\S+\s+{_VALUE}"),
    ("smbclient", rf"\bsmbclient\b[^\n|]{{0,200}}?\s-U\s?['\"]?[\w.\\/-]+%{_VALUE}"),
    ("lftp", rf"\blftp\b[^\n|]{{0,200}}?\s-u\s[\w.-]+,{_VALUE}"),
    ("chpasswd", r"\becho\s+['\"]?[\w.-]+:([^\s'\"|]+)['\"]?\s*\|\s*(?:sudo\s+)?chpasswd"),
    ("requirepass", r"\brequirepass\s+(\S+)"),
    ("masterauth", r"\bmasterauth\s+(\S+)"),
    ("IDENTIFIED", r"\bIDENTIFIED (?:WITH \S+ )?BY\s+(?:PASSWORD\s+)?'([^'\n]+)'"),
    ("PASSWORD '", r"\bPASSWORD\s+'([^'\n]+)'"),
    ("PWD=", r"(?i:(?:uid|user id|user|username)=[^;\n]{0,80};(?:[^;\n]{0,80};)*?)\s?PWD=([^;\n\"']+)"),
    (" == ", r"(?:'([^'\n]{2,200})'|\"([^\"\n]{2,200})\")\s?[=!]=\s?[\w.]*(?:password|passwd|secret|api_key)\b"),
    ("invalid", r"--?[\w-]*(?:password|passwd|token|secret|api-?key)[\w-]*: invalid [\w ]{0,20}value: (?:'([^'\n]+)'|\"([^\"\n]+)\")"),
    ("etPassword(", r"\b[sS]etPassword\((?:'([^'\n]+)'|\"([^\"\n]+)\")"),
    ("et", r"\b[sS]et_?(?:[sS]ecret|[aA]pi_?[kK]ey|[pP]assword|[tT]oken)\((?:'([^'\n]+)'|\"([^\"\n]+)\")"),
]  # fmt: skip
COMMAND_WORDS = frozenset(  # with a 1 for every digit, as `triage` looks at words
    {
        "curl", "sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb", "mongo", "mongosh", "redis-cli", "docker", "podman", "helm",
        "skopeo", "wandb", "ldapsearch", "ldapadd", "1z", "1za", "zip", "unzip", "htpasswd", "smbclient", "lftp", "requirepass",
        "masterauth",
        "IDENTIFIED", "password", "passwd", "passphrase", "Password", "Passwort", "PASSWORD", "key", "token",
    }
)  # fmt: skip
_FORMS = [(clue, re.compile(form)) for clue, form in _COMMANDS]
_SAID = re.compile(
    r"(?i:\b(?:password|passwd|passphrase|passwort))\s(?:is\s|was\s|to\s)?(?:'([^'\n]{2,200})'|\"([^\"\n]{2,200})\"|(?=[^\s\d]*\d)([^\s'\"]{6,}))"
)
_KEY_SAID = re.compile(r"(?i:\b(?:api|access|secret|auth)[ -](?:key|token)\s?[:=]\s?)['\"]?([^\s'\",;]{6,})")
_TOKEN_SAID = re.compile(r"(?i:\btoken\s)(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])([\w+/=.~!@#$%^&*-]{8,})")
_ELEMENT = re.compile(r"<([\w.:-]{2,60})(?:\s[^<>]{0,200})?>\s{0,80}([^<>\n]{1,400}?)\s{0,80}</\1>")
_PAIR = re.compile(
    r"(?i:\b(?:name|key|type|id)[\"']?\s?[:=]\s?)[\"']?([\w.-]{2,80})[\"']?[,\s]{1,40}[\"']?value[\"']?\s?[:=]\s?"
    r"(?:\"([^\"\n]{1,400})\"|'([^'\n]{1,400})'|([^\s'\",}>]{1,400}))"
)
_LIST = re.compile(r"[\"']?\s?[:=]\s?[\[(]([^\[\](){}\n]{1,4000})[\])]")
_NAME_LEFT = re.compile(r"[\w.-]{2,80}\Z")
_HAS_BLOCK = re.compile(r":[ \t]*(?:[|>][+-]?\d?)?[ \t]*\n")
_HAS_PORT = re.compile(r":\d{4,5}:")
_HAS_HEX = re.compile(r"[2-7][0-9a-fA-F]{31}")
_BLOCK = re.compile(r"^([ \t]*(?:- )?)[\"']?([\w.-]{2,80})[\"']?[ \t]*:[ \t]*([|>][+-]?\d?)?[ \t]*\n", re.MULTILINE)
_SET = re.compile(r"(?:^|(?<=[ \t]))([A-Z][A-Z0-9]*_[A-Z0-9_]+)[ \t]+(?:'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\"=]+))", re.MULTILINE)
_PASS_FILE = re.compile(r"^(?!\S+\.(?:py|c|cc|cpp|h|rs|go|js)[:])[\w.*-]+:\d{4,5}:[A-Za-z*][\w*-]*:[A-Za-z*][\w*-]*:(\S+)$", re.MULTILINE)
_ITEM = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"|([^\s,'\"]+)")
_PER_CENT = re.compile(r"(?<![\w%.~-])(?=[\w.~-]{0,80}%[0-9A-Fa-f]{2}[\w.~-]{0,80}%)(?:%[0-9A-Fa-f]{2}|[\w.~-]){12,4000}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[2-7][0-9a-fA-F]){16,2000}(?![0-9A-Za-z])")
TRACES = re.compile(
    r";\s?PWD=|:1{4,5}:[A-Za-z*][\w*-]*:|(?:%[0-9A-Fa-f]{2}[\w.~-]{0,9}){2}|(?:1[1a-fA-F]){16}|pass:|etPassword\(|<[\w.:-]*[pP]ass"
)
LONGEST_BLOCK = 40  # lines below a key


def phrased(text: str) -> Iterator[Hit]:
    """Yield what the words around it give away."""
    for clue, form in _FORMS:
        if clue in text:
            yield from _groups(form, text)
    lowered = text.lower()
    if "pass" in lowered:
        yield from _groups(_SAID, text)
    if "key" in lowered or "token" in lowered:
        yield from _groups(_KEY_SAID, text, "named-secret")
        yield from _groups(_TOKEN_SAID, text, "named-secret")
    yield from _named_elsewhere(text)
    yield from _blocks(text)
    yield from _encoded(text)
    if _HAS_PORT.search(text):
        yield from _groups(_PASS_FILE, text)


def _groups(form: re.Pattern[str], text: str, kind: str = "password") -> Iterator[Hit]:
    for found in form.finditer(text):
        group = found.lastindex
        if group and is_secret(found[group], 2, "password"):
            yield Hit(*found.span(group), kind)


def _named_elsewhere(text: str) -> Iterator[Hit]:
    """Elements, pairs of a name and a value, lists, and variables without a sign between them and their value."""
    for form in (_ELEMENT, _PAIR):
        for found in form.finditer(text) if "alue" in text or "</" in text else ():
            group = found.lastindex or 0
            if strength_of(found[1]) == 2 and is_secret(found[group], 2, found[1]):
                yield Hit(*found.span(group), "named-secret")
    for found in _LIST.finditer(text):
        name = _NAME_LEFT.search(text, max(0, found.start() - 80), found.start())
        if name and strength_of(name[0]) == 2:
            for item in _ITEM.finditer(text, *found.span(1)):
                if is_secret(item[item.lastindex or 0], 2, name[0]):
                    yield Hit(*item.span(item.lastindex or 0), "named-secret")
    for found in _SET.finditer(text) if "_" in text else ():
        group = found.lastindex or 0
        is_plain = group == 4 and not (len(found[4]) >= 6 and any(map(str.isdigit, found[4])))
        if strength_of(found[1]) == 2 and not is_plain and is_secret(found[group], 2, found[1]):
            yield Hit(*found.span(group), "named-secret")


def _blocks(text: str) -> Iterator[Hit]:
    """Lines below a key of YAML: a folded text, or items."""
    for found in _BLOCK.finditer(text) if _HAS_BLOCK.search(text) else ():
        if strength_of(found[2]) != 2:
            continue
        indent, position = len(found[1]), found.end()
        for _ in range(LONGEST_BLOCK):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end]
            inner = line.lstrip()
            is_item = inner.startswith("- ") and not found[3]
            deeper = len(line) - len(inner) - indent
            if not inner or deeper < 0 or not (is_item or (found[3] and deeper)):
                break
            begin = position + len(line) - len(inner) + (2 if is_item else 0)
            value = text[begin:end].strip().strip("\"'")
            place = text.find(value, begin, end)
            if value and (found[3] or ":" not in value) and is_secret(value, 2, found[2]):
                yield Hit(place, place + len(value), "named-secret")
            position = end + 1


def _encoded(text: str) -> Iterator[Hit]:
    """Keys of a known form that are written in hex or per cent."""
    for found in _PER_CENT.finditer(text) if "%" in text else ():
        if _is_key(urllib.parse.unquote(found[0], errors="replace")):
            yield Hit(*found.span(), "encoded-key")
    for found in _HEX.finditer(text) if _HAS_HEX.search(text) else ():
        decoded = bytes.fromhex(found[0]).decode("ascii", errors="replace")
        if decoded.isprintable() and _is_key(decoded):
            yield Hit(*found.span(), "encoded-key")


def _is_key(text: str) -> bool:
    return any(True for _ in shaped(text)) or any(True for _ in ruled(text))
