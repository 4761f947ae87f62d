"""Paths and files that users name."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from pathlib import Path

from k8s.text.errors import KubeError

MAX_BYTES = 16 * 2**20
"""Default size limit, far above any real kubeconfig or settings file."""


def expand_home(path: str | Path) -> Path:
    """Expand `~` and `~user`; an unknown user leaves the path unchanged.

    `Path.expanduser` raises `RuntimeError` there, as while a name is still being typed.
    """
    return Path(os.path.expanduser(path))


def require_own_folder(folder: Path, variable: str) -> None:
    """Refuse a folder in which another user can put files.

    Args:
        folder: If it is missing, its nearest existing parent is checked: its owner could replace it later.
        variable: Environment variable that sets another folder.

    Raises:
        KubeError: The folder belongs to neither this user nor root, or every user can write to it.
    """
    folder = next(each for each in (folder, *folder.absolute().parents) if os.access(each, os.F_OK))
    try:
        found = folder.stat()
    except OSError:
        return
    hint = f"Set {variable} to a folder of your own, or have it given to you with chown."
    if found.st_uid not in (os.geteuid(), 0):
        why = f"{folder} belongs to {_user(found.st_uid)}, and gpuconsole runs as {_user(os.geteuid())}."
        raise KubeError("The folder is another user's.", why, hint)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        why = f"Every user can write to {folder}."
        raise KubeError(
            "The folder is open to other users.",
            why,
            f"Run chmod o-w {shlex.quote(str(folder))}, or set {variable}.",
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def file_problem(error: Exception) -> str:
    """Return the reason for an error without the errno and path that Python adds."""
    return getattr(error, "strerror", None) or str(error)


def read_named_file(path: str | Path, most_bytes: int = MAX_BYTES, *, must_be_own: bool = False) -> bytes:
    """Read a regular file of at most `most_bytes`. Use it for every file that a user names.

    Set `must_be_own` for a file whose contents are run: only this user, or root, may write to it.

    Raises:
        OSError: The file cannot be read, is not regular, not safe, or is too large; see `strerror`.
    """
    # Without O_NONBLOCK, opening a FIFO waits until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        if must_be_own and status.st_uid not in (os.geteuid(), 0):
            raise OSError(errno.EPERM, f"It belongs to {_user(status.st_uid)}", str(path))
        if must_be_own and mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(
                errno.EPERM, f"Others may write to it; run chmod go-w {shlex.quote(str(path))}", str(path)
            )
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)  # st_size is out of date as soon as somebody appends
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        size = f"{most_bytes / 2**20:.0f} MiB" if most_bytes >= 2**20 else f"{most_bytes / 1000:.0f} kB"
        raise OSError(errno.EFBIG, f"File too large: more than {size}", str(path))
    return content
