"""Which names say that what they name is a secret: of variables, flags, fields, words in a log.

Training talks of tokens and keys that are none: `max_tokens=4096`, `TOKENIZERS_PARALLELISM`,
`num_key_value_heads`, a toleration's `key`. So a name is weighed together with its value.
"""

from __future__ import annotations

import re

_STRONG = r"pass(?:word|wd|phrase|code)s?|secrets?|credentials?|creds|private_?keys?"
_TOKEN = (
    r"token|apikey|authorization|cookie|signature|pwd|pat|sas|dsn"
    r"|(?:api|access|secret|private|auth|client|encryption|signing|ssh|account|storage|license)_?keys?"
)
_VAGUE = r"keys?|tokens?|auth|pass"
_OF_IT = r"(?:_(?:id|data|b64|base64|value|string|hash))*"
"""Endings that tell of which form the secret is."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STRONG_SOMEWHERE = re.compile(_STRONG)
_WEAK_SOMEWHERE = re.compile(rf"(?:token|key)s?(?![a-z])|(?<![a-z])(?:{_TOKEN}|{_VAGUE})(?![a-z])")
_STRONG_END = re.compile(rf"(?:{_STRONG}){_OF_IT}$")
_TOKEN_END = re.compile(rf"(?:^|[^a-z])(?:[a-z]*token|{_TOKEN}){_OF_IT}$")
_VAGUE_END = re.compile(rf"(?:^|[^a-z])(?:[a-z]*key|{_VAGUE}){_OF_IT}$")
_PLAIN = re.compile(r"(?i)true|false|yes|no|on|off|none|null|auto|[-+]?[0-9]{0,6}(?:\.[0-9]{0,6})?%?")
_REFERENCE = re.compile(r"\$\([A-Za-z_]\w*\)|\$\{[A-Za-z_]\w*\}")
_NO_SECRETS = frozenset({"pwd", "oldpwd", "ssh_auth_sock"})
STRUCTURAL = frozenset(
    {
        "key",
        "keys",
        "topologyKey",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "secretName",
        "tokenPath",
        "tls.key",
        "keyFile",
        "passwordFile",
        "ssh-privatekey-path",
        "sshAuthMountPath",
    }
)
"""Fields of Kubernetes objects that hold no secret, whatever their names say."""


def names_secret(name: str, value: str) -> bool:
    """Tell whether a variable or a flag of this name holds a secret: any word of its name counts."""
    snake = _snake(name)
    if not value or snake in _NO_SECRETS or _REFERENCE.fullmatch(value):
        return False
    if snake.startswith("aws_") or _STRONG_SOMEWHERE.search(snake):
        return True
    return bool(_WEAK_SOMEWHERE.search(snake)) and not _PLAIN.fullmatch(value)


def mentions_secret(name: str, value: str) -> bool:
    """Tell whether a word in running text, with what follows it, is a secret: it must end like one."""
    snake = _snake(name)
    if not value or _REFERENCE.fullmatch(value):
        return False
    if _STRONG_END.search(snake) or snake.startswith("aws_"):
        return True
    if _PLAIN.fullmatch(value) or snake in _NO_SECRETS:
        return False
    return bool(_TOKEN_END.search(snake)) or (bool(_VAGUE_END.search(snake)) and looks_random(value))


def looks_random(value: str) -> bool:
    """Tell whether a value is long and mixed enough to be a key, and no name, path or number."""
    return (
        len(value) >= 16
        and any(char.isdigit() for char in value)
        and any(char.isalpha() for char in value)
        and value.count("/") + value.count(".") + value.count("-") < len(value) / 6
    )


def _snake(name: str) -> str:
    """Return a name in lower case, its words apart: `X-Api-Key`, `apiKey` and `API_KEY` are one."""
    return _CAMEL.sub("_", name.strip("-")).replace("-", "_").replace(" ", "_").replace(".", "_").lower()
