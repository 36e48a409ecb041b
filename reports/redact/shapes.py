"""Keys and tokens that are known by their form: a prefix of the issuer, or a frame such as that of a private key or a URL.

The forms are those that issuers document; no name beside the value is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from reports.redact.hits import Hit

_BODY = r"[A-Za-z0-9_-]"
# kind: prefixes, the shortest rest and its characters
_PREFIXES: tuple[tuple[str, str, int, str], ...] = (
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", 30, r"[A-Za-z0-9_]"),
    ("gitlab-token", "glpat- gldt- glft- glsoat- glrt- glptt- gloas- glagent- glimt- glffct- glcbt- GR1348941", 18, r"[A-Za-z0-9_.-]"),
    ("model-hub-token", "hf_ api_org_ r8_", 30, r"[A-Za-z0-9]"),
    ("ai-key", "sk-ant- sk-proj- sk-svcacct- sk-admin- sk-or- gsk_ pplx- nvapi- xai- fw_ tgp_v1_ co_", 24, _BODY),
    ("ai-key", "sk-", 32, _BODY),
    ("tracker-key", "wandb_v1_ neptune_ cml_", 20, _BODY),
    ("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe. xapp-", 10, r"[A-Za-z0-9.-]"),
    ("google-key", "AIza", 35, _BODY),
    ("google-key", "ya29. GOCSPX- 1//0", 20, _BODY),
    ("alibaba-key", "LTAI", 16, r"[A-Za-z0-9]"),
    ("payment-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_ sq0atp- sq0csp- EAAA", 10, _BODY),
    ("travel-token", "duffel_live_ duffel_test_", 30, r"[\w=-]"),
    ("payment-key", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST- shippo_live_ shippo_test_ EZAK EZTK", 12, _BODY),
    ("shop-token", "shpat_ shpca_ shppa_ shpss_", 32, r"[A-Fa-f0-9]"),
    ("cloud-token", "dop_v1_ doo_v1_ dor_v1_", 40, r"[a-f0-9]"),
    ("cloud-token", "dapi pul- pnu_ pscale_tkn_ pscale_oauth_ pscale_pw_ dp.pt. dp.st. dp.ct. tk-us- ico-", 28, r"[\w.=-]"),
    ("cloud-token", "fo1_ fm1r_ fm1a_ fm2_ HRKU-", 40, r"[\w+/=-]"),
    ("vault-token", "hvs. hvb. hvr.", 24, _BODY),
    ("package-index-token", "pypi- npm_ rubygems_ CLOJARS_ oy2 cio", 32, r"[A-Za-z0-9_-]"),
    ("registry-token", "AKCp cmVmd dckr_pat_ dckr_oat_", 20, _BODY),
    ("monitoring-key", "glc_ glsa_ sntrys_ sntryu_ NRAK- NRII- NRJS- NRRA- dt0c01. phc_ phx_ eyJrIjoi", 15, r"[\w.+/=-]"),
    ("mail-key", "SG. xkeysib- xsmtpsib- key- pubkey- re_", 24, r"[\w.-]"),
    ("work-token", "lin_api_ lin_oauth_ ntn_ secret_ figd_ ATATT3 ATCTT3 ATBB fio-u- tfp_ PMAK- rdme_ sgp_ API- p8e- b_", 26, r"[\w.=-]"),
    ("work-token", "sm_aat_ sm_pat_ sm_sat_", 16, r"[A-Za-z0-9]"),
    ("facebook-token", "EAAC EAAM EAAG", 60, r"[A-Za-z0-9]"),
    ("age-key", "AGE-SECRET-KEY-1", 40, r"[A-Z0-9]"),
    ("password-manager-key", "ops_eyJ A3-", 25, r"[\w+/=-]"),
    ("openshift-token", "sha256~", 40, _BODY),
)  # fmt: skip


def tree(words: Iterable[str], not_after: str = "") -> str:
    """One pattern for many words that tries few of them at each place: they are parted by their first letter.

    What must not stand before a word is asked after its first letter: a pattern that begins with letters skips the others fast."""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(re.escape(word[0]), set()).add(re.escape(word[1:]))
    before = {first: f"(?<!{not_after}{first})" if not_after else "" for first in by_first}
    return "|".join(f"{first}{before[first]}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(by_first.items()))


PREFIXES = [(prefix, kind, re.compile(f"{body}{{{least},}}")) for kind, words, least, body in _PREFIXES for prefix in words.split()]
_BY_FIRST = {first: [entry for entry in PREFIXES if entry[0][0] == first] for first in {prefix[0] for prefix, _, _ in PREFIXES}}
NOT_WITHIN = "[A-Za-z0-9]"  # a prefix is no part of a word
ANY_PREFIX = re.compile(tree((prefix for prefix, _, _ in PREFIXES), NOT_WITHIN))
TRACES = re.compile(  # what a form below cannot be without, for a quick look at one word; whatever digits it has
    r"-----|Private-Lines|eyJ|ZXlK|://|AccountKey|SharedAccess|X-Amz|[sS]ig|A\dT|A[KSBCGIRN][A-Z]{2}|Q~|hooks|[dD]iscord|webhook|:A[A-Za-z0-9_-]{5}|"
    r"SK[0-9a-fA-F]{5}|AC[0-9a-f]{5}|-us\d|atlasv1|_mmk|v\d\.\d-|[ps]at\.|\.acc|[ps]k\.eyJ|[Bb]earer|[Bb]asic|_session=|[MNO][A-Za-z0-9_-]{23,27}\."
)
_NEEDS_DIGITS = {
    "key-",
    "pubkey-",
    "API-",
    "b_",
    "re_",
    "secret_",
    "co_",
    "fw_",
    "cio",
    "oy2",
    "pul-",
    "ico-",
    "sk-",
    "EAAA",
    "pypi-",
    "A3-",
    "xai-",
}

# kind: a word that must be there at all (found fast), and the form; group 1 is the secret where there is one.
# No form asks for a certain digit: `glance` looks at texts in which all are the same.
_FORMS: tuple[tuple[str, str, str], ...] = (
    (
        "private-key",
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:.{0,20000}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\\n|[\sA-Za-z0-9+/=:,.]){0,20000}))",
    ),
    ("private-key", "Private-Lines", r"Private-Lines: \d+\s+((?:[A-Za-z0-9+/=]{4,}\s*)+)"),
    ("jwt", "eyJ", r"eyJ(?<![A-Za-z0-9_-]eyJ)[\w=-]{10,}\.[\w=/+-]{10,}(?:\.[\w=/+-]*)?"),
    ("jwt", "ZXlK", r"(?<![A-Za-z0-9_-])ZXlK[\w+/=-]{40,}"),
    ("url-password", "://", r"[A-Za-z][A-Za-z0-9+.-]{1,30}://([^\s:/@\"'<>]{0,200}:[^\s/\"'<>@]{1,200})@(?=[^\s])"),
    ("url-password", "://", r"https?://([A-Za-z0-9_.%+-]{12,200})@(?=[A-Za-z0-9\[])"),
    ("storage-key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/=%]{20,})"),
    ("storage-key", "SharedAccessKey=", r"SharedAccessKey=([A-Za-z0-9+/=%]{16,})"),
    ("signed-url", "sig=", r"[?&;]sig=([A-Za-z0-9%+/=_-]{16,})"),
    ("signed-url", "Signature=", r"[?&](?:X-Amz-|X-Goog-)?Signature=([A-Za-z0-9%+/=_~-]{16,})"),
    ("signed-url", "X-Amz-Security-Token=", r"X-Amz-Security-Token=([A-Za-z0-9%+/=_-]{16,})"),
    ("aws-key", "A", r"A(?<![A-Za-z0-9]A)(?:\dT[A-Z0-9]|KIA|SIA|BIA|CCA|GPA|IDA|ROA|NPA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("azure-secret", "Q~", r"(?<![\w.~-])[\w.~]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])"),
    ("chat-webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/_-]{20,})"),
    ("chat-webhook", "webhook.office.com/", r"webhook\.office\.com/webhookb2/([\w@/-]{40,})"),
    ("chat-webhook", "discord", r"discord(?:app)?\.com/api/webhooks/(\d+/[\w-]{30,})"),
    ("discord-token", ".", r"[MNO](?<![\w-][MNO])[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?![\w-])"),
    ("telegram-token", ":A", r"(?<![\w-])\d{6,16}:A[A-Za-z0-9_-]{34}(?![\w-])"),
    ("twilio-key", "SK", r"SK(?<![A-Za-z0-9]SK)[0-9a-fA-F]{32}(?![A-Za-z0-9])"),
    ("twilio-key", "AC", r"AC(?<![A-Za-z0-9]AC)[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("mail-key", "-us", r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?![0-9a-z])"),
    ("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,80}"),
    ("maxmind-key", "_mmk", r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)"),
    ("cloud-token", "v1.", r"(?<!\w)v1\.\d-[a-f0-9]{24}-[a-f0-9]{146}(?!\w)"),
    ("cloud-token", "t.", r"[ps](?<![\w.][ps])at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}(?!\w)"),
    ("authress-key", ".acc", r"(?<!\w)(?:sc|ext|scauth|authress)_\w{5,30}\.\w{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,120}"),
    ("map-key", "k.eyJ", r"(?<!\w)[ps]k\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    ("bearer-token", "earer ", r"[Bb]earer\s+([\w~+/.-]{12,}=*)"),
    ("basic-auth", "asic ", r"[Bb]asic\s+([A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9+/=])"),
    ("session-cookie", "_session=", r"\w*_session=([\w%+/=-]{16,})"),
)  # fmt: skip
LONG_KINDS = ("private-key", "bearer-token", "basic-auth")  # whose forms are more than one word
FORMS = [(kind, word, re.compile(form, re.DOTALL if kind == "private-key" else 0)) for kind, word, form in _FORMS]
KINDS = frozenset({kind for _, kind, _ in PREFIXES} | {kind for kind, _, _ in FORMS})
_BASIC_NEEDS = re.compile(r"[A-Z].*[a-z]|[a-z].*[A-Z]|\d")


def shaped(text: str) -> Iterator[Hit]:
    """Everything in the text that has the form of a key."""
    for found in ANY_PREFIX.finditer(text):
        yield from _prefixed(text, found.start())
    for kind, word, form in FORMS:
        if word in text:
            for found in form.finditer(text):
                start, end = found.span(1) if form.groups else found.span()
                if kind != "basic-auth" or _BASIC_NEEDS.search(text, start, end):
                    yield Hit(start, end, kind)


def _prefixed(text: str, position: int) -> Iterator[Hit]:
    """The key that begins there, when what follows the prefix is long enough for one."""
    for prefix, kind, rest in _BY_FIRST[text[position]]:
        if text.startswith(prefix, position):
            found = rest.match(text, position + len(prefix))
            if found and _is_key(prefix, found[0]):
                yield Hit(position, found.end() - _trailing(found[0]), kind)


def _is_key(prefix: str, rest: str) -> bool:
    """A short or common prefix needs a rest that no sentence has."""
    if prefix not in _NEEDS_DIGITS:
        return True
    digits = sum(map(str.isdigit, rest))
    return digits >= max(2, len(rest) // 12) and max(map(len, re.split(r"[-_.]", rest))) >= 11


def _trailing(rest: str) -> int:
    return len(rest) - len(rest.rstrip(".-"))
