"""Pieces of which kinds build manifests, imported on first use: reading jobs needs none of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from k8s.kinds.pod_labels import *  # noqa: F403
    from k8s.kinds.pod_template import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        template = import_module("k8s.kinds.pod_template")
        return getattr(template if hasattr(template, name) else import_module("k8s.kinds.pod_labels"), name)
