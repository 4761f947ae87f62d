"""Errors of the sandbox's server, in a real server's words.

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
    """One wrong field of an object; `field` is a path such as `spec.containers[0].image`."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, why: str = "") -> StatusCause:
        """Report a missing field."""
        return cls(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> StatusCause:
        """Report a wrong value."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {why}")

    @classmethod
    def duplicate(cls, field: str, value: object) -> StatusCause:
        """Report a value that occurs twice where it must be unique."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")

    @classmethod
    def not_found(cls, field: str, value: object) -> StatusCause:
        """Report a reference to a part that the object does not have."""
        return cls(field, "FieldValueNotFound", f"Not found: {_quoted(value)}")

    @classmethod
    def unsupported(cls, field: str, value: object, supported: Iterable[str]) -> StatusCause:
        """Report a value outside the supported ones."""
        allowed = ", ".join(f'"{each}"' for each in supported)
        message = f"Unsupported value: {_quoted(value)}: supported values: {allowed}"
        return cls(field, "FieldValueNotSupported", message)

    @classmethod
    def forbidden(cls, field: str, why: str) -> StatusCause:
        """Report a field that may not be set or changed."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")


class ApiError(Exception):
    """An error answer of the server; `status` is its body."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
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


def bad_request(message: str) -> ApiError:
    """Refuse a malformed request."""
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    """Refuse a path that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> ApiError:
    """Refuse a method that the path does not support."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def not_found(served: ServedResource, name: str) -> ApiError:
    """Refuse a request for an object that does not exist."""
    return ApiError(404, "NotFound", f'{served.resource.full_name} "{name}" not found', _about(served, name))


def already_exists(served: ServedResource, name: str, *, terminating: bool = False) -> ApiError:
    """Refuse to create an object because its name is taken."""
    prefix = "object is being deleted: " if terminating else ""
    message = f'{prefix}{served.resource.full_name} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(served, name))


def conflict(served: ServedResource, name: str, why: str) -> ApiError:
    """Refuse a change of an object that has changed meanwhile."""
    message = f'Operation cannot be fulfilled on {served.resource.full_name} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(served, name))


def forbidden(served: ServedResource, name: str, why: str) -> ApiError:
    """Refuse an operation that no user may do."""
    message = f'{served.resource.full_name} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _about(served, name))


def invalid(served: ServedResource, name: str, causes: Sequence[StatusCause]) -> ApiError:
    """Refuse an object for its wrong fields."""
    resource = served.resource
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return _unprocessable(kind, name, causes, _about(served, name) | {"kind": resource.kind})


def invalid_options(kind: str, *causes: StatusCause) -> ApiError:
    """Refuse wrong request options; `kind` is, for example, `DeleteOptions`."""
    return _unprocessable(f"{kind}.meta.k8s.io", "", causes, {"group": "meta.k8s.io", "kind": kind})


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
