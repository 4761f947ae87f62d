"""Takes secrets out of objects and texts that leave this machine, and says where one was.

It finds them by their name (`HF_TOKEN=…`, `--password …`), by their form (a JWT, a PEM block, a login
in an address), and by having met them before: a variable's value is found again in the job's log.
A mark holds neither quotes nor `: `, so that JSON stays JSON and YAML YAML.
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

from k8s.text.secret_names import STRUCTURAL, looks_random, mentions_secret, names_secret

MARK = re.compile(r"<redacted [\w ./-]{1,80}>")
"""What stands where a secret was."""
SHORTEST_KNOWN = 8
"""Characters of a secret that is looked for elsewhere too; shorter ones are also words."""

_LABEL = re.compile(r"[^\w./-]+")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----"
    r"(?:.{0,30000}?-----END [A-Z0-9 ]{1,60}-----|[A-Za-z0-9+/=:,.\\\[\]\s-]{0,30000})",
    re.DOTALL,
)
_INSIDE_PEM = re.compile(r"(?<![\w+/=])(?=[A-Za-z0-9+/]*[G-Zg-z+/])[A-Za-z0-9+/]{64}(?![\w+/])={0,2}")
_HEADER = re.compile(
    r"(?P<keep>(?i:authorization|cookie)\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\s\"'\\][^\"'\\]*"
    r"|(?P<bearer>(?i:bearer)\s+)[^\s\"'\\]{6,}"
)
"""What HTTP logs people in by: it goes on to the end of the header."""
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
"""Secrets that are known by their form."""
_VALUE = (
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'"
    r"|(?P<slashes>\\+[\"'])(?P<escaped>.*?)(?P=slashes)|(?P<rest>[\"'].*)|(?P<bare>\S*[^\s\"']))"
)
_NAMED_VALUE = re.compile(
    r"(?P<name>(?<![\w.-])-{0,2}(?:(?i:api|access|secret|private) )?[A-Za-z_][\w.-]{0,100})"
    rf"(?P<end>\\*[\"']?\]?)(?P<sep>\s*(?:=>|:=|==?|:)\s*|\s+)(?={_VALUE})"
)
"""A name and its value: `token=…`, `"api_key": "…"`, `--password …`."""
_LOOSELY = re.compile(
    r"(?i)(?<![\w-])((?:\w+[_ -])?(?:token|key|secret|password|credential)s?)"
    r"[\s\"'`:=(\[]{1,4}(?:(?:is|was|of|for|value)[\s\"'`:=(\[]{1,4})?([A-Za-z0-9+/_.~=-]{16,})"
)
_YAML = re.compile(
    r"(?P<start>\s*(?:- +)*)(?P<quote>[\"']?)(?P<name>[\w.-]{1,100})(?P=quote):[ \t]+(?P<value>\S.*)"
)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")


class Redactor:
    """Redacts what belongs together: a secret that one part names is taken out of the later ones too."""

    def __init__(self) -> None:
        """Begin without knowing any secret."""
        self.removed: Counter[str] = Counter()
        """What was taken out, in the words of the marks, and how often."""
        self._known: dict[str, str] = {}
        self._anywhere: re.Pattern[str] | None = None

    def remember(self, what: str, secret: str) -> None:
        """Take a secret out wherever it is met from now on."""
        if len(secret) >= SHORTEST_KNOWN:
            self._known[secret] = what
            self._anywhere = None

    def object(self, value: Any) -> Any:
        """Return an object as JSON has it, without secrets; what is given stays as it is."""
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return self._list(value)
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return any text without secrets: a log, a command line, YAML or JSON."""
        found = self._json(text)
        if found is not None:
            return found
        text = _PEM.sub(lambda _: self._mark("pem block"), text)
        return "\n".join(self._lines(text.split("\n")))

    def _mapping(self, value: Mapping[str, Any]) -> dict[str, Any]:
        name, held = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(held, str) and names_secret(name, held):
            return {**self._fields(value), "value": self._secret(f"env {name}", held)}
        found = self._fields(value)
        if value.get("kind") == "SecretList" and isinstance(value.get("items"), list):
            found["items"] = [self.object({**each, "kind": "Secret"}) for each in value["items"]]
        if _is_secret(value):
            for field in ("data", "stringData"):
                if isinstance(value.get(field), Mapping):
                    found[field] = {
                        key: self._secret(f"secret {key}", str(each)) for key, each in value[field].items()
                    }
        return found

    def _fields(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._field(str(key), each) for key, each in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        if name in STRUCTURAL or isinstance(value, (bool, Mapping)) or value is None:
            return self.object(value)
        if isinstance(value, (list, tuple)):
            is_secret = all(isinstance(each, str) and names_secret(name, each) for each in value)
            return [self._secret(name, each) for each in value] if is_secret else self._list(value)
        return self._secret(name, str(value)) if names_secret(name, str(value)) else self.object(value)

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        """Redact the items; a word after a flag that names a secret is one, as in `--token`, `abc`."""
        found: list[Any] = []
        flag = ""
        for each in value:
            if isinstance(each, str) and flag and not each.startswith("--") and names_secret(flag, each):
                found.append(self._secret(flag, each))
            else:
                found.append(self.object(each))
            flag = each if isinstance(each, str) and _FLAG.fullmatch(each) else ""
        return found

    def _json(self, text: str) -> str | None:
        """Redact a text that is a JSON object or array; None for any other."""
        stripped = text.strip()
        if stripped[:1] + stripped[-1:] not in ("{}", "[]"):
            return None
        try:
            value = json.loads(stripped)
            redacted = self.object(value)
            return text if redacted == value else json.dumps(redacted, ensure_ascii=False)
        except (ValueError, RecursionError):
            return None

    def _lines(self, lines: list[str]) -> list[str]:
        """Redact line by line; what a line of YAML says may go on in those that are further to the right."""
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
        """Redact what names say; one value may be the name of the next."""
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
        if not looks_random(value):
            return found[0]
        return found[0][: found.start(2) - found.start()] + self._secret(name, value)

    def _secret(self, what: str, value: str) -> str:
        """Remember a secret, and return what is to stand in its place."""
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
    """Tell a Secret; items of a list do not say their kind, but their type."""
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
    """Change a text, but for the marks in it."""
    if "<redacted " not in text:
        return change(text)
    found, end = [], 0
    for mark in MARK.finditer(text):
        found += [change(text[end : mark.start()]), mark[0]]
        end = mark.end()
    return "".join([*found, change(text[end:])])


def _value_of(match: re.Match[str]) -> tuple[str, int, int]:
    """Return a value without its quotes, and where it stands; in JSON a bare one ends with its field."""
    for group in ("double", "single", "escaped", "bare"):
        if match[group] is not None:
            value, start = match[group], match.start(group)
            if group == "bare" and match["end"]:
                value = re.split(r"[,}\]]", value, maxsplit=1)[0]
            return value, start, start + len(value)
    return match["rest"][1:], match.start("rest") + 1, match.end("rest")
