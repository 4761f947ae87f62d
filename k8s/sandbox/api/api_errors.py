"""What the sandbox's server answers when it will not: one exception, and the words a real server uses.

Clients act on `reason` and `details`, people read `message`; both are checked against a
real kube-apiserver in `tests/k8s/sandbox/api/conformance/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8s.sandbox.api.served import ServedResource


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One wrong field of an object."""

    field: str
    """Where, as in `spec.containers[0].image`."""
    reason: str
    """One word for programs, as in `FieldValueRequired`."""
    message: str
    """A sentence for people."""

    @classmethod
    def required(cls, field: str, why: str = "") -> StatusCause:
        """Say that a field is missing."""
        return cls(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> StatusCause:
        """Say that a field's value is wrong."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {why}")

    @classmethod
    def duplicate(cls, field: str, value: object) -> StatusCause:
        """Say that a value stands twice where it may stand once."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")

    @classmethod
    def not_found(cls, field: str, value: object) -> StatusCause:
        """Say that a field names something that the object does not have."""
        return cls(field, "FieldValueNotFound", f"Not found: {_quoted(value)}")

    @classmethod
    def unsupported(cls, field: str, value: object, supported: Iterable[str]) -> StatusCause:
        """Say that a value is none of those allowed."""
        allowed = ", ".join(f'"{each}"' for each in supported)
        message = f"Unsupported value: {_quoted(value)}: supported values: {allowed}"
        return cls(field, "FieldValueNotSupported", message)

    @classmethod
    def forbidden(cls, field: str, why: str) -> StatusCause:
        """Say that a field may not be set, or not be changed."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        """The HTTP status."""
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": dict(details or {}),
            "code": code,
        }
        """The `v1.Status` to send."""


def bad_request(message: str) -> ApiError:
    """Refuse a request that cannot be understood."""
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    """Refuse a path that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> ApiError:
    """Refuse a method that this path does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def not_found(served: ServedResource, name: str) -> ApiError:
    """Refuse because there is no object by that name."""
    return ApiError(404, "NotFound", f'{served.resource.full_name} "{name}" not found', _about(served, name))


def already_exists(served: ServedResource, name: str, *, terminating: bool = False) -> ApiError:
    """Refuse a create because the name is taken."""
    prefix = "object is being deleted: " if terminating else ""
    message = f'{prefix}{served.resource.full_name} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(served, name))


def conflict(served: ServedResource, name: str, why: str) -> ApiError:
    """Refuse a change because the object is not what the client thinks."""
    message = f'Operation cannot be fulfilled on {served.resource.full_name} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(served, name))


def forbidden(served: ServedResource, name: str, why: str) -> ApiError:
    """Refuse what nobody may do."""
    message = f'{served.resource.full_name} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _about(served, name))


def invalid(served: ServedResource, name: str, causes: Sequence[StatusCause]) -> ApiError:
    """Refuse an object for its wrong fields."""
    resource = served.resource
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return _unprocessable(kind, name, causes, _about(served, name) | {"kind": resource.kind})


def invalid_options(kind: str, *causes: StatusCause) -> ApiError:
    """Refuse wrong parameters of a request; `kind` is as in `DeleteOptions`."""
    return _unprocessable(f"{kind}.meta.k8s.io", "", causes, {"group": "meta.k8s.io", "kind": kind})


def expired(why: str) -> ApiError:
    """Refuse to answer about a version that is forgotten."""
    return ApiError(410, "Expired", why)


def version_too_large(asked: int, current: int) -> ApiError:
    """Refuse to answer about a version that is not there yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details)


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """Refuse a body in a format that this path does not take."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
        accepted
    )
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(why: str) -> ApiError:
    """Refuse a request that asks for more than we hold."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def not_served(what: str) -> ApiError:
    """Refuse something that a cluster does and the sandbox does not."""
    return ApiError(501, "NotImplemented", f"the sandbox does not serve {what}")


def _unprocessable(kind: str, name: str, causes: Sequence[StatusCause], details: dict[str, Any]) -> ApiError:
    parts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = f"[{', '.join(parts)}]" if len(parts) > 1 else "".join(parts)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def _about(served: ServedResource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": served.resource.group, "kind": served.resource.plural}
    return {key: value for key, value in details.items() if value}


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
