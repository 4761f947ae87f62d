"""What can go wrong with a cluster, one class per reason that somebody acts on.

KubeError                  what failed, why in the server's words, what to do now
├── NoCluster              there is no kubeconfig, or it cannot be used
├── Unreachable            no answer: connection refused, reset, timed out
├── NotKubernetes          an answer, but none of a Kubernetes API
├── Unauthorized           401: the credentials are missing or expired
├── Forbidden              403: this user may not do it
├── NotFound               404
├── Conflict               409: changed meanwhile, or the name is taken
├── Expired                410: that version is forgotten, list again
├── Invalid                400, 422: refused, with the fields that are wrong
├── Throttled              429, with the seconds to wait
└── ServerFailed           5xx, or an answer that makes no sense
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class KubeError(Exception):
    """Something that could not be done, in words for the person who asked for it."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        """What failed, one sentence."""
        self.why = why
        """Why, in the words of whoever refused."""
        self.hint = hint
        """What to do now."""
        self.is_foreign = False
        """What was answered may come from something else than a Kubernetes API: `fetch_version` tells."""

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.details) if part)

    @property
    def details(self) -> str:
        """Return why it failed and what to do now, one below the other."""
        return "\n".join(part for part in (self.why, self.hint) if part)


class NoCluster(KubeError):
    """There is no kubeconfig, or what it says cannot be used."""


class Unreachable(KubeError):
    """The server gave no answer."""


class NotKubernetes(KubeError):
    """Something answers at the server's address, but it is no Kubernetes API."""


class Unauthorized(KubeError):
    """The server does not know who asks."""


class Forbidden(KubeError):
    """The server knows who asks, and they may not."""


class NotFound(KubeError):
    """The thing, or its kind, is not there."""


class Conflict(KubeError):
    """Somebody else changed it meanwhile, or the name is taken."""

    @property
    def name_is_taken(self) -> bool:
        """Tell a create of a name in use from an update that came too late."""
        return self.reason == "AlreadyExists"

    reason = ""
    """The server's one-word reason: AlreadyExists or Conflict."""


class Expired(KubeError):
    """The version asked for is forgotten: list again, never resume."""


class Invalid(KubeError):
    """The server refuses what it was given."""

    causes: Mapping[str, str] = {}
    """Field path, as `spec.template.spec.containers[0].image`, to the server's sentence about it."""


class Throttled(KubeError):
    """The server asks to be left alone for a while."""

    retry_after_s: float = 1.0
    """Seconds that the server asked for."""


class ServerFailed(KubeError):
    """The server broke, or answered something that makes no sense."""

    retry_after_s: float = 0.0
    """Seconds that the server asked to be left alone; 0 when it did not."""


FORBIDDEN_HINT = "Pick another namespace, or ask for a role that allows it."
"""What to do about a 403."""
UNAUTHORIZED_HINT = "Log in to the cluster again, then try again."
"""What to do when the credentials have expired, in the console and on the command line."""

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

_NOT_SERVED = (404, 405, 501)
"""What a web server says of an unknown path. An API server does too, of groups without a Status."""
_QUOTA = "exceeded quota"
"""What a 403 says that is no matter of rights. Source: kubernetes `plugin/pkg/admission/resourcequota`."""
_HINTS: Mapping[int, str] = {
    401: UNAUTHORIZED_HINT,
    403: FORBIDDEN_HINT,
}


def from_status(code: int, status: object, doing: str, retry_after: str = "") -> KubeError:
    """Translate an HTTP status and the `Status` object that came with it.

    Args:
        code: The HTTP status, 400 or above, or the code inside a watch's ERROR event.
        status: The decoded `v1.Status`; whatever else the body was says nothing.
        doing: What was tried, as in "create PyTorchJob bert".
        retry_after: The `Retry-After` header, in seconds.

    Source: Kubernetes API conventions, "Response Status Kind".
    """
    said = _mapping(status)
    why = str(said.get("message") or f"The server answered {code}.")[:2000]
    kind = _BY_CODE.get(code, ServerFailed)
    hint = "Ask for less, or for a larger quota." if _QUOTA in why else _HINTS.get(code, "")
    error = kind(f"Could not {doing}.", why=f"The cluster says: {why}", hint=hint)
    error.is_foreign = code in _NOT_SERVED and said.get("kind") != "Status"
    details = _mapping(said.get("details"))
    if isinstance(error, Invalid):
        causes = details.get("causes")
        for cause in map(_mapping, causes if isinstance(causes, list) else ()):
            error.causes = {
                **error.causes,
                str(cause.get("field") or ""): str(cause.get("message") or ""),
            }
    elif isinstance(error, Conflict):
        error.reason = str(said.get("reason") or "")
    elif isinstance(error, Throttled):
        error.retry_after_s = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds")) or 1.0
    elif isinstance(error, ServerFailed):
        error.retry_after_s = _seconds(retry_after)
    return error


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _seconds(found: object) -> float:
    """Return a time to wait; nothing when it is none, as the date that a header may hold."""
    try:
        seconds = float(str(found))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
