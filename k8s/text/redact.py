"""Redaction of secrets in objects and texts that leave this machine.

Secrets are found by name (`HF_TOKEN=…`, `--password …`), by form (a JWT, a PEM block, a login
in a URL), and by value: a variable's value is redacted in the job's log too.
Training uses "token" and "key" for other things too: `max_tokens=4096`, `TOKENIZERS_PARALLELISM`,
`num_key_value_heads`, a toleration's `key`. So a name is judged together with its value.
A mark holds neither quotes nor `: `, so that JSON and YAML stay valid.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

_STRONG = r"pass(?:word|wd|phrase|code)s?|secrets?|credentials?|creds|private_?keys?"
_TOKEN = (
    r"token|apikey|authorization|cookie|signature|pwd|pat|sas|dsn"
    r"|(?:api|access|secret|private|auth|client|encryption|signing|ssh|account|storage|license)_?keys?"
)
_VAGUE = r"keys?|tokens?|auth|pass"
_OF_IT = r"(?:_(?:id|data|b64|base64|value|string|hash))*"

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
        "git_secret",
        "pull_secrets",
    }
)
"""Fields of Kubernetes objects and of `JobSpec` that hold no secret despite their names."""


def names_secret(name: str, value: str) -> bool:
    """Return True if a variable or flag of this name holds a secret; any word of the name counts."""
    snake = _snake(name)
    if not value or snake in _NO_SECRETS or _REFERENCE.fullmatch(value):
        return False
    if snake.startswith("aws_") or _STRONG_SOMEWHERE.search(snake):
        return True
    return bool(_WEAK_SOMEWHERE.search(snake)) and not _PLAIN.fullmatch(value)


def mentions_secret(name: str, value: str) -> bool:
    """Return True if a word in running text names a secret; the end of the word must match."""
    snake = _snake(name)
    if not value or _REFERENCE.fullmatch(value):
        return False
    if _STRONG_END.search(snake) or snake.startswith("aws_"):
        return True
    if _PLAIN.fullmatch(value) or snake in _NO_SECRETS:
        return False
    return bool(_TOKEN_END.search(snake)) or (bool(_VAGUE_END.search(snake)) and is_random(value))


def is_random(value: str) -> bool:
    """Return True if a value is long and mixed enough for a key, and not a name, path or number."""
    return (
        len(value) >= 16
        and any(char.isdigit() for char in value)
        and any(char.isalpha() for char in value)
        and value.count("/") + value.count(".") + value.count("-") < len(value) / 6
    )


def _snake(name: str) -> str:
    return _CAMEL.sub("_", name.strip("-")).replace("-", "_").replace(" ", "_").replace(".", "_").lower()


MARK = re.compile(r"<redacted [\w ./-]{1,80}>")
# Shorter secrets could be ordinary words, so they are not searched for elsewhere.
SHORTEST_KNOWN = 8

_LABEL = re.compile(r"[^\w./-]+")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----"
    r"(?:.{0,30000}?-----END [A-Z0-9 ]{1,60}-----|[A-Za-z0-9+/=:,.\\\[\]\s-]{0,30000})",
    re.DOTALL,
)
_INSIDE_PEM = re.compile(r"(?<![\w+/=])(?=[A-Za-z0-9+/]*[G-Zg-z+/])[A-Za-z0-9+/]{64}(?![\w+/])={0,2}")
# Credentials extend to the end of the header.
_HEADER = re.compile(
    r"(?P<keep>(?i:authorization|cookie)\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\s\"'\\][^\"'\\]*"
    r"|(?P<bearer>(?i:bearer)\s+)[^\s\"'\\]{6,}"
)
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("jwt", re.compile(r"eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?")),
    ("login", re.compile(r"(?<=://)(?:[^\s/@'\"]*:[^\s'\"]+|[^\s/@'\"]+)(?=@(?!sha256:))")),
    ("login", re.compile(r"(?:(?<= -u )|(?<= --user ))[^\s:'\"]+:[^\s'\"]+")),
    ("aws key", re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Z0-9])")),
    (
        "token",
        re.compile(
            r"(?<![\w-])(?:gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{16,}|npm_\w{20,}"
            r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|dckr_pat_[\w-]{16,})"
        ),
    ),
    ("key", _INSIDE_PEM),
)
_VALUE = (
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'"
    r"|(?P<slashes>\\+[\"'])(?P<escaped>.*?)(?P=slashes)|(?P<rest>[\"'].*)|(?P<bare>\S*[^\s\"']))"
)
# A name and its value: `token=…`, `"api_key": "…"`, `--password …`.
_NAMED_VALUE = re.compile(
    r"(?P<name>(?<![\w.-])-{0,2}(?:(?i:api|access|secret|private) )?[A-Za-z_][\w.-]{0,100})"
    rf"(?P<end>\\*[\"']?\]?)(?P<sep>\s*(?:=>|:=|==?|:)\s*|\s+)(?={_VALUE})"
)
_LOOSELY = re.compile(
    r"(?i)(?<![\w-])((?:\w+[_ -])?(?:token|key|secret|password|credential)s?)"
    r"[\s\"'`:=(\[]{1,4}(?:(?:is|was|of|for|value)[\s\"'`:=(\[]{1,4})?([A-Za-z0-9+/_.~=-]{16,})"
)
_YAML = re.compile(
    r"(?P<start>\s*(?:- +)*)(?P<quote>[\"']?)(?P<name>[\w.-]{1,100})(?P=quote):[ \t]+(?P<value>\S.*)"
)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")


class Redactor:
    """Redactor for related texts: a secret found in one is redacted everywhere in it, and in later ones."""

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        """Marks by label, and how often each was inserted."""
        self._known: dict[str, str] = {}
        self._anywhere: re.Pattern[str] | None = None

    def remember(self, what: str, secret: str) -> None:
        """Redact a secret wherever it occurs from now on."""
        if len(secret) >= SHORTEST_KNOWN:
            self._known[secret] = what
            self._anywhere = None

    def object(self, value: Any) -> Any:
        """Return a JSON value without secrets; the argument is not changed."""
        return self._in_two_passes(self._object, value)

    def text(self, text: str) -> str:
        """Return a text without secrets: a log, a command line, YAML or JSON."""
        found: str = self._in_two_passes(self._text, text)
        return found

    def _in_two_passes(self, redact: Callable[[Any], Any], value: Any) -> Any:
        # What comes first may repeat a secret that only a later field names: `command` stands before `env`.
        known, removed = len(self._known), self.removed.copy()
        found = redact(value)
        if len(self._known) > known:
            self.removed = removed
            found = redact(value)
        return found

    def _object(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return self._list(value)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        found = self._json(text)
        if found is not None:
            return found
        text = _PEM.sub(lambda _: self._mark("pem block"), text)
        return "\n".join(self._lines(text.split("\n")))

    def _mapping(self, value: Mapping[str, Any]) -> dict[str, Any]:
        # Fields that are redacted as a whole; each of their secrets is counted once.
        whole: dict[str, Any] = {}
        name, held = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(held, str) and names_secret(name, held):
            whole["value"] = self._secret(f"env {name}", held)
        elif value.get("kind") == "SecretList" and isinstance(value.get("items"), list):
            whole["items"] = [self._object({**each, "kind": "Secret"}) for each in value["items"]]
        elif _is_secret(value):
            for field in ("data", "stringData"):
                if isinstance(value.get(field), Mapping):
                    whole[field] = {
                        key: self._secret(f"secret {key}", str(each)) for key, each in value[field].items()
                    }
        return {**self._fields({**value, **dict.fromkeys(whole)}), **whole}

    def _fields(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._field(str(key), each) for key, each in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        if name in STRUCTURAL or isinstance(value, (bool, Mapping)) or value is None:
            return self._object(value)
        if isinstance(value, (list, tuple)):
            is_secret = all(isinstance(each, str) and names_secret(name, each) for each in value)
            return [self._secret(name, each) for each in value] if is_secret else self._list(value)
        return self._secret(name, str(value)) if names_secret(name, str(value)) else self._object(value)

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        # The word after a flag that names a secret is one: `--token`, `abc`.
        found: list[Any] = []
        flag = ""
        for each in value:
            if isinstance(each, str) and flag and not each.startswith("--") and names_secret(flag, each):
                found.append(self._secret(flag, each))
            else:
                found.append(self._object(each))
            flag = each if isinstance(each, str) and _FLAG.fullmatch(each) else ""
        return found

    def _json(self, text: str) -> str | None:
        # None if the text is not a JSON object or array.
        stripped = text.strip()
        if stripped[:1] + stripped[-1:] not in ("{}", "[]"):
            return None
        try:
            value = json.loads(stripped)
            redacted = self._object(value)
            return text if redacted == value else json.dumps(redacted, ensure_ascii=False)
        except (ValueError, RecursionError):
            return None

    def _lines(self, lines: list[str]) -> list[str]:
        # A YAML value may continue on lines with a deeper indent.
        found: list[str] = []
        column = -1
        for line in lines:
            if column >= 0 and (not line.strip() or len(line) - len(line.lstrip()) > column):
                continue
            column = -1
            match = _YAML.fullmatch(line)
            if match and self._is_named_secret(match["name"], match["value"].strip("\"'")):
                column = len(match["start"])
                mark = self._secret(match["name"], match["value"].strip("\"'"))
                found.append(f"{line[: match.start('value')]}{mark}")
            else:
                parsed = self._json(line)
                found.append(self._inline(line) if parsed is None else parsed)
        return found

    @staticmethod
    def _is_named_secret(name: str, value: str) -> bool:
        is_known = name in STRUCTURAL or MARK.fullmatch(value) or value in ("{}", "[]")
        return not is_known and (names_secret if name.isupper() else mentions_secret)(name, value)

    def _inline(self, line: str) -> str:
        line = _outside(line, self._known_secrets)
        line = _outside(line, lambda part: _HEADER.sub(self._header, part))
        line = _outside(line, self._named_values)
        for what, form in _FORMS:
            line = _outside(line, partial(form.sub, lambda found, what=what: self._secret(what, found[0])))
        return _outside(line, lambda part: _LOOSELY.sub(self._loose, part))

    def _known_secrets(self, part: str) -> str:
        if self._anywhere is None and self._known:
            values = sorted(self._known, key=len, reverse=True)
            self._anywhere = re.compile("|".join(map(re.escape, values)))
        if self._anywhere is None:
            return part
        return self._anywhere.sub(lambda found: self._mark(self._known[found[0]]), part)

    def _header(self, found: re.Match[str]) -> str:
        keep = found["keep"] or found["bearer"]
        return keep + self._secret("authorization", found[0].removeprefix(keep))

    def _named_values(self, part: str) -> str:
        # A value may itself be the name of the next value.
        found, end = "", 0
        while match := _NAMED_VALUE.search(part, end):
            name, is_flag = match["name"], match["name"].startswith("-")
            value, start, stop = _value_of(match)
            has_separator = is_flag or match["sep"].strip()
            says = names_secret if is_flag or name.isupper() else mentions_secret
            is_value = bool(value.strip("\\\"'")) and not (is_flag and value.startswith("--"))
            if has_separator and is_value and says(name, value):
                found += part[end:start] + self._secret(name, value)
                end = stop
            else:
                found += part[end : match.end("name")]
                end = match.end("name")
        return found + part[end:]

    def _loose(self, found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if not is_random(value):
            return found[0]
        return found[0][: found.start(2) - found.start()] + self._secret(name, value)

    def _secret(self, what: str, value: str) -> str:
        if MARK.fullmatch(value):
            return value
        for each in (value, _decoded(value) if what.startswith("secret ") else ""):
            is_word = each.isalpha() and len(each) < 20
            if len(each) >= SHORTEST_KNOWN and "\n" not in each and not is_word:
                self._known.setdefault(each, what)
                self._anywhere = None
        return self._mark(what)

    def _mark(self, what: str) -> str:
        label = _LABEL.sub(" ", what).strip()[:80].strip() or "secret"
        self.removed[label] += 1
        return f"<redacted {label}>"


def _is_secret(value: Mapping[str, Any]) -> bool:
    # The items of a list have no kind, but a type.
    kind = value.get("type")
    is_typed = isinstance(kind, str) and (
        kind == "Opaque" or kind.startswith(("kubernetes.io/", "bootstrap."))
    )
    return value.get("kind") == "Secret" or (is_typed and "data" in value)


def _decoded(value: str) -> str:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text


def _outside(text: str, change: Callable[[str], str]) -> str:
    if "<redacted " not in text:
        return change(text)
    found, end = [], 0
    for mark in MARK.finditer(text):
        found += [change(text[end : mark.start()]), mark[0]]
        end = mark.end()
    return "".join([*found, change(text[end:])])


def _value_of(match: re.Match[str]) -> tuple[str, int, int]:
    """Return a value without its quotes, with its start and end; in JSON a bare value ends with its field."""
    for group in ("double", "single", "escaped", "bare"):
        if match[group] is not None:
            value, start = match[group], match.start(group)
            if group == "bare" and match["end"]:
                value = re.split(r"[,}\]]", value, maxsplit=1)[0]
            return value, start, start + len(value)
    return match["rest"][1:], match.start("rest") + 1, match.end("rest")


MASK = "•••"


def masked(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Secret with its values masked, or any other object unchanged."""
    if obj.get("kind") != "Secret":
        return dict(obj)
    hidden = {
        field: dict.fromkeys(obj[field], MASK)
        for field in ("data", "stringData")
        if isinstance(obj.get(field), Mapping)
    }
    return {**obj, **hidden}
