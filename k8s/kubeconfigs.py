"""Where kubectl finds kubeconfigs; what they say is read by `contexts`, which YAML makes slow to import."""

from __future__ import annotations

import os
from pathlib import Path


def kubeconfig_files() -> list[Path]:
    """Return the kubeconfig files that kubectl would merge, those that exist."""
    text = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for part in text.split(os.pathsep) if part and (path := Path(part).expanduser()).is_file()]
