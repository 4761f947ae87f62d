"""Let `gpuconsole diagnose` ask a running Python process where it is.

The packaged trainers call `arm`; `submit --debuggable` brings this file to other programs as
`sitecustomize.py`. Nothing runs until `k8s/reasons/stacks/probe.py` asks, which repeats the names:

- faulthandler's signal handler writes all stacks, even if a thread holds the GIL.
- torch's worker server (2.5 or newer) listens on a UNIX socket in a private folder, once there is a process
  group, and also gives the collectives of the flight recorder. No port is opened.
"""

from __future__ import annotations  # the Python of an image may be old

import atexit
import faulthandler
import fcntl
import os
import sys
from contextlib import suppress
from functools import partial, wraps
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # the module `typing` would double the time that this one takes
if TYPE_CHECKING:
    from typing import Any

# Real-time signal that neither Python nor torch, NCCL, MPI or Slurm uses.
SIGNAL = 50
# Name of the file in memory with the stacks; read as /proc/PID/fd/N, it leaves nothing behind.
STACKS = "gpuconsole-stacks"
# The flight recorder is off in these versions of torch; later this variable is deprecated.
_OLD_TORCH, _RECORDER = ("2.4.", "2.5.", "2.6."), "TORCH_NCCL_TRACE_BUFFER_SIZE"
_GROUPS = "torch.distributed.distributed_c10d"

_stacks = -1
_server: Any = None


def arm() -> None:
    """Answer the signal from now on, and start the worker server with a process group."""
    if sys.platform != "linux" or os.environ.get("GPUCONSOLE_DEBUGGABLE") == "0":
        return
    _register()
    os.register_at_fork(after_in_child=_register)
    if _GROUPS not in sys.modules:
        sys.meta_path.insert(0, _Importer)


def _register() -> None:
    global _stacks
    try:
        if _stacks >= 0:
            os.close(_stacks)
        _stacks = os.memfd_create(STACKS, os.MFD_CLOEXEC)
        fcntl.fcntl(_stacks, fcntl.F_SETFL, os.O_APPEND)  # the reader empties it
        faulthandler.register(SIGNAL, file=_stacks, all_threads=True, chain=False)
    except (AttributeError, OSError, RuntimeError, ValueError):
        _stacks = -1


class _Importer:
    """Finder that notices when torch's process groups are imported."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _GROUPS:
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = partial(_run, spec.loader.exec_module)
            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def _run(execute: Any, module: Any) -> None:
    execute(module)
    init = module.init_process_group
    if module.torch.__version__.startswith(_OLD_TORCH):
        os.environ.setdefault(_RECORDER, "2000")

    @wraps(init)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        try:
            _serve(module.get_rank())
        except Exception as error:  # never the end of a program that trains
            print(f"gpuconsole: no worker server: {error}", file=sys.stderr)

    module.init_process_group = init_process_group


def _serve(rank: int) -> None:
    global _server
    from torch._C import _distributed_c10d as c10d

    if _server is not None or not hasattr(c10d, "_WorkerServer"):
        return
    pid, folder = os.getpid(), os.open(private_folder(), os.O_RDONLY | os.O_DIRECTORY)
    # By its descriptor: a socket's path holds 107 bytes, and TMPDIR may be longer.
    path = f"/proc/self/fd/{folder}/{pid}-{rank}.sock"
    with suppress(FileNotFoundError):
        os.unlink(path)
    held, real = os.memfd_create("gpuconsole-stderr", os.MFD_CLOEXEC), os.dup(2)
    os.dup2(held, 2)  # torch logs a line about the socket; other lines are written afterwards
    try:
        _server = c10d._WorkerServer(path)
    finally:
        os.dup2(real, 2)
        lines = os.pread(held, 1 << 20, 0).splitlines(keepends=True)
        os.write(2, b"".join(line for line in lines if b"Server listening to UNIX" not in line))
        os.close(held)
        os.close(real)
    # Never freed: its end would be logged, and a forked child does not have the thread that it waits for.
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_server))

    def stop() -> None:
        if os.getpid() == pid:
            with suppress(OSError):
                os.unlink(path)

    atexit.register(stop)


def private_folder() -> str:
    """Return the folder of this pod's sockets, made if needed; refuse one that another user could enter."""
    pod = os.environ.get("GPUCONSOLE_POD_UID")  # in the sandbox alone, whose pods share /tmp
    base = os.environ.get("TMPDIR", "/tmp") if pod else "/tmp"
    folder = f"{base}/gpuconsole-{pod or os.uname().nodename}-{os.geteuid()}"
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        if found.st_mode & 0o170077 != 0o40000 or found.st_uid != os.geteuid():
            raise OSError(f"{folder} is not a private folder of this user") from None
    return folder


def _run_replaced() -> None:
    """Run the `sitecustomize` of the image, which this one hides."""
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != here])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    arm()
    _run_replaced()
