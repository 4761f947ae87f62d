"""A small cluster of processes on this machine, behind the Kubernetes API: start, stop, where it is.

This is all that the console uses of it; everything else goes through the kubeconfig.
Nothing here imports the server: it runs in a process of its own.
"""

from __future__ import annotations

from k8s.sandbox.launcher import (
    SandboxAddress,
    SandboxOptions,
    SandboxStatus,
    kubeconfig_path,
    reset,
    start,
    status,
    stop,
)

__all__ = [
    "SandboxAddress",
    "SandboxOptions",
    "SandboxStatus",
    "kubeconfig_path",
    "reset",
    "start",
    "status",
    "stop",
]
