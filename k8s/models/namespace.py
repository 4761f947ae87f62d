"""Namespaces and resource quotas."""

from __future__ import annotations

from typing import Any

from k8s.models.base import Meta, Quantities, Value


class NamespaceStatus(Value, frozen=True):
    """The phase, `Active` or `Terminating`."""

    phase: str = ""


class Namespace(Value, frozen=True):
    """A `v1.Namespace`."""

    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()


class QuotaSpec(Value, frozen=True):
    """The pods that a quota counts; all if both fields are None."""

    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Value, frozen=True):
    """Limits and usage."""

    hard: Quantities | None = None
    used: Quantities | None = None


class Quota(Value, frozen=True):
    """A `v1.ResourceQuota`."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()
