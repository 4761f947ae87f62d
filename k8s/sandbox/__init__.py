"""Small cluster of processes on this machine, behind the Kubernetes API: start, stop, status.

This is the whole interface to the console; everything else goes through the kubeconfig. Nothing here imports
the server, which runs in a process of its own.
"""

from __future__ import annotations

from k8s.sandbox.launcher import (
    SandboxAddress,
    SandboxOptions,
    SandboxStatus,
    is_running,
    kubeconfig_path,
    reset,
    start,
    status,
    stop,
)

__all__ = [
    "SandboxAddress", "SandboxOptions", "SandboxStatus", "is_running", "kubeconfig_path", "reset",
    "start", "status", "stop",
]  # fmt: skip
