"""Refuses what would let other users of this machine run code: a rendezvous by pickles in an open store.

Only where the pods' torch cannot be given a file in place of that store: see `node.torch_loopback`.
Found wherever it can be asked for, whatever the kind: a job's field, a pod's variable, torchrun's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from k8s.sandbox.api.api_errors import StatusCause

REFUSED = (
    "the sandbox refuses the c10d rendezvous: before torch 2.5 it unpickles what any user of this machine "
    "can write into its store; update torch, or leave it out for static rendezvous, or: "
    "gpuconsole sandbox start --allow-open-rendezvous"
)
_FIELD = "rdzvBackend"
_STATIC, _OPTIONS = "torchrunConfig", "extraOptions"
"""T9k's field, whose back-end the sandbox takes as a static rendezvous; its options are torchrun's words."""
_VARIABLE = "PET_RDZV_BACKEND"
_WORDS = re.compile(r"--rdzv[-_]backend[=\s]\s*['\"]?c10d\b")


def newly_open(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[StatusCause]:
    """Return the fields that ask for the c10d rendezvous; none when `old` asked for it already."""
    if old is not None and any(open_rendezvous(old.get("spec"), "spec")):
        return []
    return list(open_rendezvous(obj.get("spec"), "spec"))


def open_rendezvous(value: Any, at: str) -> Iterator[StatusCause]:
    """Find what asks for the c10d rendezvous in `value`, which stands at the field `at`."""
    if isinstance(value, dict):
        if value.get("name") == _VARIABLE and _is_c10d(value.get("value")):
            yield StatusCause.forbidden(f"{at}.value", REFUSED)
        for name, below in value.items():
            if name == _FIELD and _is_c10d(below):
                yield StatusCause.forbidden(f"{at}.{name}", REFUSED)
            elif name == _STATIC and isinstance(below, dict):
                yield from open_rendezvous({_OPTIONS: below.get(_OPTIONS)}, f"{at}.{name}")
            elif name in ("command", "args", _OPTIONS) and isinstance(below, list):
                if _WORDS.search(" ".join(map(str, below))):
                    yield StatusCause.forbidden(f"{at}.{name}", REFUSED)
            else:
                yield from open_rendezvous(below, f"{at}.{name}")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from open_rendezvous(below, f"{at}[{index}]")


def _is_c10d(backend: object) -> bool:
    return str(backend).strip().lower() == "c10d"
