"""Errors of the cluster, one class per cause that callers handle differently."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

_COMMAND = r": (?:gpuconsole|kubectl|export) [^:]*$"
_BEFORE_COMMAND = re.compile(rf"(?<=\.) (?=[^.]*{_COMMAND})")


def join_sentences(*parts: str) -> str:
    """Join sentences on one line, with a full stop between those that lack one.

    One that ends with a command comes last, so that it can be copied as it is.
    """
    lines = [" ".join(part.split()) for part in parts if part.strip()]
    texts = [text for line in lines for text in _BEFORE_COMMAND.split(line)]
    texts.sort(key=lambda text: bool(re.search(_COMMAND, text)))
    *firsts, last = texts or [""]
    return " ".join([*(text if text[-1] in ".!?…:" else f"{text}." for text in firsts), last])


class KubeError(Exception):
    """Failed request, described for the user."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint
        self.is_foreign = False
        """True if the answer may not come from a Kubernetes API; `fetch_version` finds out."""

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.details) if part)

    @property
    def details(self) -> str:
        """Reason and hint on separate lines."""
        return "\n".join(part for part in (self.why, self.hint) if part)


class NoCluster(KubeError):
    """No kubeconfig, or an unusable one."""


class Unreachable(KubeError):
    """No answer: connection refused, reset, timed out."""


class NotKubernetes(KubeError):
    """Server that is not a Kubernetes API."""


class Unauthorized(KubeError):
    """401: missing or expired credentials."""


class Forbidden(KubeError):
    """403: missing permission."""


class NotFound(KubeError):
    """404: missing object or resource."""


class Conflict(KubeError):
    """409: object changed meanwhile, or name already in use."""

    @property
    def is_name_in_use(self) -> bool:
        """Return True for a create with a name in use, False for an outdated update."""
        return self.reason == "AlreadyExists"

    reason = ""


class Expired(KubeError):
    """410: resource version too old to resume from; list again."""


class Invalid(KubeError):
    """400, 422: object that the server refuses."""

    causes: Mapping[str, str] = {}
    """The server's message by field path, e.g. `spec.template.spec.containers[0].image`."""

    @property
    def is_about_dry_run(self) -> bool:
        """Return True if only the dry run was refused: a webhook does not support it."""
        return not self.causes and "does not support dry run" in self.why


class Throttled(KubeError):
    """429: request refused by rate limiting."""

    retry_after_s: float = 1.0


class ServerFailed(KubeError):
    """5xx, or an answer that cannot be read."""

    retry_after_s: float = 0.0
    """Retry-After of the server; 0 if it sent none."""


class TooLarge(ServerFailed):
    """Answer beyond a limit. Reading it again costs as much again, so that must not be soon."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.retry_after_s = 60.0


class ExecFailed(KubeError):
    """Command in a container that failed."""


E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """Drop the traceback and the causes of an error to be stored: their frames hold the bytes read."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


FORBIDDEN_HINT = "Pick another namespace, or ask for a role that allows it."
SANDBOX_CONTEXT = "sandbox"
UNAUTHORIZED_HINT = "Log in to the cluster again, then try again."

_BY_CODE: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}

# A web server answers so for unknown paths; so does an API server, without a Status, for unknown groups.
_NOT_SERVED = (404, 405, 501)
# In the message of a 403 that is about quota, not permission.
# Source: kubernetes `plugin/pkg/admission/resourcequota`.
_QUOTA = "exceeded quota"
_HINTS: Mapping[int, str] = {401: UNAUTHORIZED_HINT, 403: FORBIDDEN_HINT}


def from_status(code: int, status: object, doing: str, retry_after: str = "") -> KubeError:
    """Translate an HTTP status and the `Status` object that came with it.

    Args:
        code: HTTP status of 400 or above, or the code of a watch's ERROR event.
        status: The decoded `v1.Status`; anything else is ignored.
        doing: The request, as in "create PyTorchJob bert".
        retry_after: `Retry-After` header, in seconds.

    Source: Kubernetes API conventions, "Response Status Kind".
    """
    body = _mapping(status)
    why = str(body.get("message") or f"The server answered {code}.")[:2000].strip()
    kind = _BY_CODE.get(code, ServerFailed)
    hint = "Ask for less, or for a larger quota." if _QUOTA in why else _HINTS.get(code, "")
    if why.endswith("HTTP request to an HTTPS server."):  # Source: Go, net/http/server.go
        hint = "Correct the server in the kubeconfig: it must begin with https://."
    error = kind(f"Could not {doing}.", why=f"The cluster says: {why}", hint=hint)
    error.is_foreign = code in _NOT_SERVED and body.get("kind") != "Status"
    details = _mapping(body.get("details"))
    if isinstance(error, Invalid):
        causes = details.get("causes")
        for cause in map(_mapping, causes if isinstance(causes, list) else ()):
            error.causes = {**error.causes, str(cause.get("field") or ""): str(cause.get("message") or "")}
    elif isinstance(error, Conflict):
        error.reason = str(body.get("reason") or "")
    elif isinstance(error, Throttled):
        error.retry_after_s = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds")) or 1.0
    elif isinstance(error, ServerFailed):
        error.retry_after_s = _seconds(retry_after)
    return error


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _seconds(found: object) -> float:
    # A header may hold a date instead of seconds.
    try:
        seconds = float(str(found))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
