"""Who and where: home folders, users, hosts, IP and hardware addresses, e-mail."""

from __future__ import annotations

import builtins
import dataclasses
import getpass
import ipaddress
import keyword
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from reports.redact.hits import Hit

# Accounts and machines that say nothing about who runs them.
GENERIC = {
    "root", "user", "users", "ubuntu", "debian", "admin", "administrator", "runner", "ec2-user", "centos", "fedora", "vagrant",
    "docker", "jovyan", "app", "data", "shared", "public", "guest", "nobody", "build", "builder", "ci", "jenkins", "work", "train",
    "test", "model", "conda", "python", "linuxbrew", "git", "default", "daemon", "www-data", "slurm", "ray", "dev", "me", "you",
    "name", "localhost", "localdomain", "ip6-localhost", "host", "server", "node", "main", "master", "worker", "gpu", "cpu", "linux",
    "darwin", "local", "none", "unknown", "container", "port", "hostname", "address", "string", "optional", "required", "uid", "the",
    "either", "any", "all", "this", "password", "url",
}  # fmt: skip
_HOME = re.compile(
    r"(?:/(?:home|Users|export/home)/|[A-Za-z]:\\{1,2}Users\\{1,2})"
    r"((?:[^/\\\s:;,\"'<>|*?]+ (?=[^/\\\s]+[/\\]))?[^/\\\s:;,\"'<>|*?()]+)(?=[/\\\s:;,\"'<>)]|$)"
)
_EMAIL = re.compile(r"(?<![\w.+/-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}(?![\w@])(?!\.\d)")
_LOGIN = re.compile(r"(?<![\w.@/-])([a-z_][a-z0-9_.-]{1,31})@([A-Za-z0-9][A-Za-z0-9.-]{0,62})(?=:[~/]|:\s*[~$#]|\]?[$#]\s| ~|'s password)")
_IPV4 = re.compile(r"(?<![\w.=+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV4_VERSION = re.compile(r"(?i)(?:version|release|sections?|chapter|ver\.?|driver|toolkit|cud\w+|lib\w+|nccl|[a-z]+==|v)[\s:='\"]{0,3}\Z")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]|\.\w)")
_MAC = re.compile(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
_INTERNAL = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.)+(?:internal|intranet|intra|corp|lan|local|home|priv|private|cluster\.local)(?![\w-]|\.\w)"
)
_HOST_NAME = re.compile(
    r"(?:\b(?:HOSTNAME|HOST|MASTER_ADDR|SLURMD_NODENAME|SLURM_\w*NODELIST|SLURM_SUBMIT_HOST|NODE_NAME|COMPUTERNAME)\b|--(?:host|master[_-]addr|rdzv[_-]endpoint)|"
    r"\b(?:hostname|nodename|host|node))[\"']?(?:\s*[=:]\s*|\s+(?=[\w.-]*\d))[\"']?([A-Za-z][\w-]*[\w](?:\.[\w-]+)*)"
)
_USER_NAME = re.compile(
    r"(?:\b(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER)|\buser(?:name)?)[\"']?\s*[=:]\s*[\"']?([A-Za-z_][\w.-]{1,31})|\buid=\d+\(([\w.-]+)\)"
)
_HOST_CLUES = ("HOST", "host", "NODE", "node", "MASTER_ADDR", "master", "rdzv", "COMPUTERNAME")
_USER_CLUES = ("USER", "user", "LOGNAME", "uid=")
_SUFFIXES = (".internal", ".intra", ".corp", ".lan", ".local", ".home", ".priv", ".cluster")
_SURE_SUFFIXES = {"lan", "corp", "intra", "intranet"}  # the others are names of attributes too
_HOST_BEFORE = re.compile(r"(?:@|://|\b(?:to|from|on|at|via|host|node|server|peer|ssh|ping|scp|rsync)[ :=\"']{1,3})\Z")
_PORT_AFTER = re.compile(r":\d{2,5}\b")
_WORDS_OF_CODE = frozenset({*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, "self", "cls"})
_ADDRESS = re.compile(r"\.\d+\.\d+\.\d")
_COLONS, _DASHES = re.compile(r":[0-9A-Fa-f]{0,4}:"), re.compile("-[0-9A-Fa-f]{2}-")
_TRACES = re.compile(r"@|/home/|\.(?:int|corp|lan|loc|home|priv|clus)")
_NAME_TRACES = re.compile("host|node|addr|rdzv|computername|user|logname|uid=")
_WORD_AFTER = re.compile(r" [a-z]")
_NO_HOST = re.compile(r"(?i)true|false|none|null|auto|any|all|memory|ram|os\.\w+|[a-z]+\(.*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """Names of the machine that packs: they are recognised wherever they stand as a word of their own."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def usable(self) -> Known:
        """Without those that say nothing, or are so short that they are parts of other words."""
        return Known(users=frozenset(filter(is_telling, self.users)), hosts=frozenset(filter(is_telling, self.hosts)))


def has_trace(word: str) -> bool:
    """Whether a word may be part of what this module finds, or name it."""
    traces = (_TRACES, _ADDRESS, _COLONS, _DASHES)
    return any(trace.search(word) for trace in traces) or bool(_NAME_TRACES.search(word.lower()))


def is_telling(name: str) -> bool:
    return len(name) >= 3 and name.lower() not in GENERIC and not name.isdigit()


def _parts_of_host(name: str) -> list[str]:
    """The short form of a host's full name where that tells a machine, and the domain, in which other hosts are."""
    short, _, domain = name.partition(".")
    found = [short] if domain and re.search(r"\d|-", short) and not name.replace(".", "").isdigit() else []
    return [*found, *([domain] if domain.count(".") >= 1 and found else [])]


def _is_no_word(name: str) -> bool:
    """Return False for a name that Python itself has: a user `max` is told from the function only by what stands around the name."""
    return name not in _WORDS_OF_CODE


class Identities:
    """Finds them; names that it meets in one place are recognised as words of their own everywhere from then on."""

    def __init__(self, known: Known) -> None:
        known = known.usable()
        self.users = set(filter(_is_no_word, known.users))
        self.hosts = set(filter(_is_no_word, known.hosts))
        self._code: set[str] = set()
        self._words: tuple[int, re.Pattern[str] | None] = (-1, None)

    def spare(self, names: Iterable[str]) -> None:
        """Take note of names in a program: a user or host of such a name is recognised only by what stands around the name."""
        self._code.update(names)
        self.users -= self._code
        self.hosts -= self._code

    def learn(self, kind: str, value: str) -> None:
        known = {"user": self.users, "host": self.hosts}.get(kind)
        if known is None:
            return
        for name in (value, *_parts_of_host(value)) if kind == "host" else (value,):
            if is_telling(name) and _is_no_word(name) and name not in self._code:
                known.add(name)

    def find(self, text: str, *, is_source: bool = False) -> Iterator[Hit]:
        """Yield what tells who or where; in a source `user: The name of ...` explains a parameter."""
        if "@" in text:
            yield from _mailboxes(text)
            yield from _logins(text)
        if _ADDRESS.search(text):
            yield from _addresses(text)
        if any(suffix in text for suffix in _SUFFIXES):
            yield from (Hit(*found.span(), "host") for found in _INTERNAL.finditer(text) if self._is_host(text, found))
        has_colons = _COLONS.search(text)
        if has_colons or _DASHES.search(text):
            yield from (
                Hit(*found.span(), "mac") for found in _MAC.finditer(text) if found[0] not in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff")
            )
        if has_colons:
            yield from (Hit(*found.span(), "ip") for found in _IPV6.finditer(text) if _is_telling_ipv6(found[0]))
        yield from _homes(text)
        if not is_source and any(word in text for word in _HOST_CLUES):
            yield from _groups(_HOST_NAME, text, "host")
        if not is_source and any(word in text for word in _USER_CLUES):
            yield from _groups(_USER_NAME, text, "user")
        yield from self.words(text)

    def _is_host(self, text: str, found: re.Match[str]) -> bool:
        """Return False for an attribute or a module: `threading.local`, `self.private`, `Path.home`."""
        labels = found[0].split(".")
        if self._code.issuperset(labels) or labels[0] in ("kubernetes", *_WORDS_OF_CODE) or text[found.end() : found.end() + 1] in "([=":
            return False
        if labels[-1] in _SURE_SUFFIXES or found[0].endswith(".cluster.local") or "-" in found[0]:
            return True
        is_shown = _HOST_BEFORE.search(text, max(0, found.start() - 24), found.start())
        has_number = len(labels) == 2 and labels[0][-1:].isdigit() and labels[0].islower()
        return bool(is_shown or _PORT_AFTER.match(text, found.end()) or has_number) and labels[0][:1].islower()

    def words(self, text: str) -> Iterator[Hit]:
        """The names that are known so far, where they are words of their own."""
        words = self._pattern()
        if words and any(name in text for name in (*self.users, *self.hosts)):
            yield from (Hit(*found.span(), "user" if found[0] in self.users else "host") for found in words.finditer(text))

    def _pattern(self) -> re.Pattern[str] | None:
        if self._words[0] != len(self.users) + len(self.hosts):
            names = sorted(self.users | self.hosts, key=lambda name: (-len(name), name))
            words = "|".join(rf"(?:[A-Za-z0-9-]{{1,63}}\.)?{re.escape(name)}" if "." in name else re.escape(name) for name in names)
            built = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])") if names else None
            self._words = (len(names), built)
        return self._words[1]


def _mailboxes(text: str) -> Iterator[Hit]:
    position = text.find("@")
    while position >= 0:
        after = text.find("@", position + 1)
        has_domain = text.find(".", position, min(position + 260, after if after >= 0 else len(text))) >= 0
        found = _EMAIL.search(text, max(0, position - 66), position + 260) if has_domain else None
        if found and not found[0].startswith("git@"):
            yield Hit(*found.span(), "email")
        position = text.find("@", max(position + 1, found.end() if found else 0))


def _homes(text: str) -> Iterator[Hit]:
    if "/home/" in text or "Users" in text:
        for found in _HOME.finditer(text):
            if is_telling(found[1]):
                yield Hit(*found.span(1), "user")


def _logins(text: str) -> Iterator[Hit]:
    """`alice@gpu7:~$`: a prompt, or the target of ssh and scp."""
    for found in _LOGIN.finditer(text):
        if is_telling(found[1]):
            yield Hit(*found.span(1), "user")
        if is_telling(found[2]) and not found[2].startswith(("github.", "gitlab.", "GLIBC")):
            yield Hit(*found.span(2), "host")


def _addresses(text: str) -> Iterator[Hit]:
    for found in _IPV4.finditer(text):
        before = text[max(0, found.start() - 24) : found.start()]
        if _is_telling_ipv4(found[0]) and not _IPV4_VERSION.search(before):
            yield Hit(*found.span(), "ip")


def _is_telling_ipv4(text: str) -> bool:
    """Not loopback, not a mask; and no version such as 12.1.3.1, whose first number is small, unless it is of a private network."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_multicast or text.startswith(("255.", "0.")) or address == ipaddress.IPv4Address("8.8.8.8"):
        return False
    return address.is_private or address.packed[0] >= 20 or max(address.packed[1:]) >= 40


def _is_telling_ipv6(text: str) -> bool:
    """Not loopback; and no scope of C++ such as `c10::d`, which has two short groups at most."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    groups = [group for group in text.split(":") if group]
    is_long = len(groups) >= 3 or (len(groups) == 2 and max(map(len, groups)) >= 4)
    return is_long and not (address.is_loopback or address.is_unspecified)


def _groups(pattern: re.Pattern[str], text: str, kind: str) -> Iterator[Hit]:
    for found in pattern.finditer(text):
        group = found.lastindex or 1
        is_sentence = text[found.start(group) - 1] == " " and _WORD_AFTER.match(text, found.end(group)) and not found[group].islower()
        if is_telling(found[group]) and not is_sentence and not _NO_HOST.fullmatch(found[group]):
            yield Hit(*found.span(group), kind)


def names_of(users: Iterable[str], hosts: Iterable[str]) -> Known:
    """Hosts also by the short form of their name."""
    full = {host for host in hosts if host}
    return Known(users=frozenset(filter(None, users)), hosts=frozenset(full | {host.partition(".")[0] for host in full}))


def names_of_here() -> Known:
    """Who and where we are."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return names_of([user, Path.home().name], [platform.node()])
