"""Namespaces, and how much may be asked for in them."""

from __future__ import annotations

from typing import Any

from k8s.models.base import Meta, Quantities, Value


class NamespaceStatus(Value, frozen=True):
    """`Active` or `Terminating`."""

    phase: str = ""


class Namespace(Value, frozen=True):
    """A `v1.Namespace`."""

    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()


class QuotaSpec(Value, frozen=True):
    """For which pods a quota counts; all, when nothing is said."""

    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Value, frozen=True):
    """The limits of a quota, and how much of each is taken."""

    hard: Quantities | None = None
    used: Quantities | None = None


class Quota(Value, frozen=True):
    """A `v1.ResourceQuota`."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()
