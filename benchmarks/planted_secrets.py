"""Kinds of secrets as public scanners list them, and where a run may hold them.

Each kind is a rule of gitleaks' default configuration or a plug-in of detect-secrets, under its name there, with the form that the
rule's pattern describes.  Values are made at random: none of them was ever valid.  `{w36}` is 36 letters and digits; see `_CLASSES`.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable

_CLASSES = {
    "w": string.ascii_letters + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "a": string.ascii_letters,
    "b": string.ascii_letters + string.digits + "+/",
    "s": string.ascii_letters + string.digits + "_-",
    "t": string.ascii_uppercase + "234567",
}
UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
# rule: the variable under which such a key is usually kept, and its form
KINDS: dict[str, tuple[str, str]] = {
    "1password-secret-key": ("OP_SECRET_KEY", "A3-{u6}-{u11}-{u5}-{u5}-{u5}"),
    "adafruit-api-key": ("ADAFRUIT_IO_KEY", "{l32}"),
    "adobe-client-secret": ("ADOBE_CLIENT_SECRET", "p8e-{l32}"),
    "age-secret-key": ("SOPS_AGE_KEY", "AGE-SECRET-KEY-1{u58}"),
    "airtable-api-key": ("AIRTABLE_API_KEY", "key{w14}"),
    "algolia-api-key": ("ALGOLIA_API_KEY", "{l32}"),
    "alibaba-access-key-id": ("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI{l20}"),
    "alibaba-secret-key": ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "{l30}"),
    "anthropic-api-key": ("ANTHROPIC_API_KEY", "sk-ant-api03-{s93}AA"),
    "anthropic-admin-api-key": ("ANTHROPIC_ADMIN_KEY", "sk-ant-admin01-{s93}AA"),
    "artifactory-api-key": ("ARTIFACTORY_API_KEY", "AKCp{w69}"),
    "artifactory-reference-token": ("ARTIFACTORY_TOKEN", "cmVmd{w59}"),
    "asana-client-secret": ("ASANA_CLIENT_SECRET", "{l32}"),
    "atlassian-api-token": ("JIRA_API_TOKEN", "ATATT3{s186}"),
    "aws-access-token": ("AWS_ACCESS_KEY_ID", "AKIA{t16}"),
    "aws-session-key-id": ("AWS_ACCESS_KEY_ID", "ASIA{t16}"),
    "aws-secret-access-key": ("AWS_SECRET_ACCESS_KEY", "{b40}"),
    "azure-ad-client-secret": ("AZURE_CLIENT_SECRET", "{w3}8Q~{s34}"),
    "azure-storage-key": ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acc;AccountKey={b86}==;EndpointSuffix=core"),
    "basic-auth": ("FEED_URL", "https://svc:{w16}@feed.example.com/simple"),
    "beamer-api-token": ("BEAMER_API_KEY", "b_{l44}"),
    "bitbucket-client-secret": ("BITBUCKET_CLIENT_SECRET", "{l64}"),
    "clojars-api-token": ("CLOJARS_PASSWORD", "CLOJARS_{l60}"),
    "cloudant": ("CLOUDANT_URL", "https://acc:{h64}@acc.cloudant.com"),
    "cloudflare-api-key": ("CLOUDFLARE_API_TOKEN", "{s40}"),
    "cloudflare-global-api-key": ("CLOUDFLARE_API_KEY", "{h37}"),
    "cloudflare-origin-ca-key": ("CF_ORIGIN_CA_KEY", "v1.0-{h24}-{h146}"),
    "codecov-access-token": ("CODECOV_TOKEN", "{l32}"),
    "cohere-api-token": ("COHERE_API_KEY", "{w40}"),
    "coinbase-access-token": ("COINBASE_ACCESS_TOKEN", "{l64}"),
    "confluent-secret-key": ("CONFLUENT_SECRET", "{l64}"),
    "database-password": ("DB_PASSWORD", "{w9}"),
    "databricks-api-token": ("DATABRICKS_TOKEN", "dapi{h32}"),
    "datadog-access-token": ("DATADOG_API_KEY", "{l40}"),
    "digitalocean-pat": ("DIGITALOCEAN_TOKEN", "dop_v1_{h64}"),
    "discord-bot-token": ("DISCORD_BOT_TOKEN", "M{w23}.{w6}.{s27}"),
    "discord-client-secret": ("DISCORD_CLIENT_SECRET", "{s32}"),
    "doppler-api-token": ("DOPPLER_TOKEN", "dp.pt.{l43}"),
    "dropbox-api-token": ("DROPBOX_TOKEN", "sl.{s135}"),
    "dynatrace-api-token": ("DT_API_TOKEN", "dt0c01.{u24}.{u64}"),
    "easypost-api-token": ("EASYPOST_API_KEY", "EZAK{w54}"),
    "facebook-page-access-token": ("FB_PAGE_TOKEN", "EAAM{w110}"),
    "facebook-secret": ("FACEBOOK_APP_SECRET", "{h32}"),
    "fastly-api-token": ("FASTLY_API_TOKEN", "{s32}"),
    "flyio-access-token": ("FLY_API_TOKEN", "fo1_{s43}"),
    "gcp-api-key": ("GOOGLE_API_KEY", "AIza{s35}"),
    "generic-api-key": ("SERVICE_API_KEY", "{w28}"),
    "github-app-token": ("GH_APP_TOKEN", "ghs_{w36}"),
    "github-fine-grained-pat": ("GH_TOKEN", "github_pat_{w22}_{w59}"),
    "github-oauth": ("GH_OAUTH", "gho_{w36}"),
    "github-pat": ("GITHUB_TOKEN", "ghp_{w36}"),
    "github-refresh-token": ("GH_REFRESH", "ghr_{w36}"),
    "gitlab-cicd-job-token": ("CI_JOB_TOKEN", "glcbt-{h2}_{s20}"),
    "gitlab-deploy-token": ("CI_DEPLOY_PASSWORD", "gldt-{s20}"),
    "gitlab-pat": ("GITLAB_TOKEN", "glpat-{s20}"),
    "gitlab-ptt": ("TRIGGER_TOKEN", "glptt-{h40}"),
    "gitlab-rrt": ("REGISTRATION_TOKEN", "GR1348941{s20}"),
    "gitlab-session-cookie": ("COOKIE", "_gitlab_session={h32}"),
    "grafana-cloud-api-token": ("GRAFANA_TOKEN", "glc_{b60}"),
    "grafana-service-account-token": ("GRAFANA_SA_TOKEN", "glsa_{w32}_{h8}"),
    "harness-api-key": ("HARNESS_API_KEY", "pat.{s22}.{w24}.{w20}"),
    "hashicorp-tf-api-token": ("TF_TOKEN", "{w14}.atlasv1.{s64}"),
    "heroku-api-key": ("HEROKU_API_KEY", UUID),
    "heroku-api-key-v2": ("HEROKU_KEY", "HRKU-AA{s58}"),
    "huggingface-access-token": ("HF_TOKEN", "hf_{a34}"),
    "huggingface-organization-api-token": ("HF_ORG_TOKEN", "api_org_{a34}"),
    "ibm-cloud-iam": ("IBM_CLOUD_IAM_KEY", "{s44}"),
    "infracost-api-token": ("INFRACOST_API_KEY", "ico-{w32}"),
    "jwt": ("ID_TOKEN", "eyJ{w34}.eyJ{w60}.{s43}"),
    "linear-api-key": ("LINEAR_API_KEY", "lin_api_{l40}"),
    "mailchimp-api-key": ("MAILCHIMP_API_KEY", "{h32}-us14"),
    "mailgun-private-api-token": ("MAILGUN_API_KEY", "key-{h32}"),
    "mapbox-api-token": ("MAPBOX_TOKEN", "pk.{l60}.{l22}"),
    "mattermost-access-token": ("MATTERMOST_TOKEN", "{l26}"),
    "maxmind-license-key": ("MAXMIND_LICENSE_KEY", "{w6}_{w29}_mmk"),
    "new-relic-insert-key": ("NEW_RELIC_INSERT_KEY", "NRII-{l32}"),
    "new-relic-user-api-key": ("NEW_RELIC_API_KEY", "NRAK-{u27}"),
    "notion-api-token": ("NOTION_TOKEN", "ntn_{d11}{w35}"),
    "npm-access-token": ("NPM_TOKEN", "npm_{w36}"),
    "octopus-deploy-api-key": ("OCTOPUS_API_KEY", "API-{u26}"),
    "okta-access-token": ("OKTA_API_TOKEN", "00{s40}"),
    "openai-api-key": ("OPENAI_API_KEY", "sk-{w20}T3BlbkFJ{w20}"),
    "openai-project-key": ("OPENAI_API_KEY", "sk-proj-{s74}T3BlbkFJ{s74}"),
    "openshift-user-token": ("OPENSHIFT_TOKEN", "sha256~{s43}"),
    "perplexity-api-key": ("PERPLEXITY_API_KEY", "pplx-{w48}"),
    "planetscale-password": ("PSCALE_PASSWORD", "pscale_pw_{s43}"),
    "postgres-url": ("DATABASE_URL", "postgres://svc:{w14}@db.example.com:5432/runs"),
    "postman-api-token": ("POSTMAN_API_KEY", "PMAK-{h24}-{h34}"),
    "prefect-api-token": ("PREFECT_API_KEY", "pnu_{w36}"),
    "pulumi-api-token": ("PULUMI_ACCESS_TOKEN", "pul-{h40}"),
    "pypi-upload-token": ("TWINE_PASSWORD", "pypi-AgEIcHlwaS5vcmc{s80}"),
    "redis-url": ("REDIS_URL", "redis://:{w18}@cache.example.com:6379/0"),
    "rubygems-api-token": ("GEM_HOST_API_KEY", "rubygems_{h48}"),
    "sendgrid-api-token": ("SENDGRID_API_KEY", "SG.{s22}.{s43}"),
    "sendinblue-api-token": ("BREVO_API_KEY", "xkeysib-{h64}-{w16}"),
    "sentry-user-token": ("SENTRY_AUTH_TOKEN", "sntryu_{h64}"),
    "shippo-api-token": ("SHIPPO_TOKEN", "shippo_live_{h40}"),
    "shopify-access-token": ("SHOPIFY_TOKEN", "shpat_{h32}"),
    "shopify-shared-secret": ("SHOPIFY_SECRET", "shpss_{h32}"),
    "slack-app-token": ("SLACK_APP_TOKEN", "xapp-1-{u11}-{d13}-{h64}"),
    "slack-bot-token": ("SLACK_BOT_TOKEN", "xoxb-{d12}-{d12}-{w24}"),
    "slack-user-token": ("SLACK_USER_TOKEN", "xoxp-{d12}-{d12}-{d12}-{h32}"),
    "slack-webhook-url": ("SLACK_WEBHOOK", "https://hooks.slack.com/services/T{u8}/B{u8}/{w24}"),
    "snyk-api-token": ("SNYK_TOKEN", UUID),
    "softlayer": ("SOFTLAYER_API_KEY", "{l64}"),
    "sourcegraph-access-token": ("SRC_ACCESS_TOKEN", "sgp_{h16}_{h40}"),
    "square-access-token": ("SQUARE_TOKEN", "sq0atp-{s22}"),
    "square-oauth": ("SQUARE_SECRET", "sq0csp-{s43}"),
    "stripe-access-token": ("STRIPE_API_KEY", "sk_live_{w24}"),
    "telegram-bot-api-token": ("TELEGRAM_BOT_TOKEN", "{d10}:A{s34}"),
    "travisci-access-token": ("TRAVIS_TOKEN", "{l22}"),
    "twilio-api-key": ("TWILIO_API_KEY", "SK{h32}"),
    "typeform-api-token": ("TYPEFORM_TOKEN", "tfp_{s59}"),
    "vault-batch-token": ("VAULT_TOKEN", "hvb.{s140}"),
    "vault-service-token": ("VAULT_TOKEN", "hvs.{s92}"),
    "wandb-api-key": ("WANDB_API_KEY", "{h40}"),
    "yandex-api-key": ("YANDEX_API_KEY", "AQVN{s36}"),
}
_FORM = re.compile(r"\{(\w)(\d+)\}")


def value(kind: str, chance: random.Random) -> str:
    """A secret of that kind that nobody ever had."""
    form = _FORM.sub(lambda found: "".join(chance.choices(_CLASSES[found[1]], k=int(found[2]))), KINDS[kind][1])
    return form[:-1] + "a" if form[-1] in "-_" else form  # no issuer ends a key with a sign that scanners take for its end


def core(secret: str) -> str:
    """What of a connection string or URL must not be seen: its password or key."""
    found = re.search(r"://[^/@]*:([^@/]+)@|AccountKey=([^;]+)|/services/(.+)|_session=(.+)", secret)
    return next(group for group in found.groups() if group) if found else secret


def private_key(chance: random.Random, title: str = "RSA PRIVATE KEY") -> str:
    lines = ["".join(chance.choices(_CLASSES["b"], k=64)) for _ in range(12)]
    return "\n".join([f"-----BEGIN {title}-----", *lines, f"-----END {title}-----"])


def coloured(text: str) -> str:
    """As a terminal shows it: each third character in a colour of its own."""
    return "".join(f"\x1b[{31 + number % 7}m{character}\x1b[0m" if number % 3 == 0 else character for number, character in enumerate(text))


def wrapped(name: str, secret: str) -> str:
    """As a terminal of 72 columns breaks it."""
    text = f"[2026-01-02 03:04:05] INFO config: {name}={secret}"
    return "\n".join(text[start : start + 72] for start in range(0, len(text), 72))


# channel: how a line of it says the secret
LINES: dict[str, Callable[[str, str], str]] = {
    "plain": lambda name, secret: f"{name}={secret}",
    "exported": lambda name, secret: f'export {name}="{secret}"',
    "yaml": lambda name, secret: f"  {name.lower()}: {secret}",
    "json": lambda name, secret: f'{{"{name}": "{secret}", "lr": 0.1}}',
    "python": lambda name, secret: f"{name.lower()} = '{secret}'",
    "option": lambda name, secret: f"python train.py --{name.lower().replace('_', '-')} {secret} --lr 0.1",
    "option=": lambda name, secret: f"python train.py --{name.lower().replace('_', '-')}={secret} --lr 0.1",
    "argv list": lambda name, secret: f"['train.py', '--{name.lower().replace('_', '-')}', '{secret}', '--lr', '0.1']",
    "environment dump": lambda name, secret: f"environ({{'PATH': '/usr/bin', '{name}': '{secret}'}})",
    "log": lambda name, secret: f"2026-01-02 03:04:05 DEBUG using {name}={secret} for upload",
    "coloured": lambda name, secret: f"\x1b[1;32mINFO\x1b[0m {name}={coloured(secret)} set",
    "wrapped": wrapped,
    "header": lambda _, secret: f"> Authorization: Bearer {secret}",
}
