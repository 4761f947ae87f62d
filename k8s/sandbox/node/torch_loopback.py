"""Plug-in of torch in pods: keeps the rendezvous of a job's ranks on this machine and private to its user.

torch's TCPStore listens on all addresses, whatever MASTER_ADDR says, and has no password: another user of
this machine could join as a rank, and object collectives (`all_gather_object`) unpickle whatever a rank
sends. So static rendezvous (`env://`, `tcp://`, torchrun's) and c10d rendezvous meet at files that only the
sandbox's user may open, and a TCPStore that a program opens itself listens on 127.0.0.1.

It also replaces NCCL by gloo where GPUs are simulated, and lets a torchvision built for CUDA be imported
under a torch without CUDA.

torch 2.5 and later load it at the end of `import torch`: `write_plugin` puts it and its entry point, in the
group `torch.backends`, into a folder on the pod's PYTHONPATH. It needs nothing but torch.
"""

import importlib.abc
import importlib.util
import inspect
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

RENDEZVOUS_HOST = "GPUCONSOLE_RENDEZVOUS_HOST"
_FILE = "rendezvous"
# Folder in the sandbox's with a link to the file of each static rendezvous, by port.
_STORES = "stores"
_STATIC = "torch.distributed.elastic.rendezvous.static_tcp_rendezvous"
_HOST_STARTS_WITHIN_S, _POLL_S = 60.0, 0.1
# Gives each round of the rendezvous a store of its own; a shared one has keys of dead ranks.
_NOT_SHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
# Indices of GPUs that do not exist.
SIMULATED_GPUS = "GPUCONSOLE_SIMULATED_GPUS"
NCCL_REPLACED = "gpuconsole: the GPUs are simulated, so gloo works in NCCL's place."
_TORCHVISION = "torchvision._meta_registrations"
_told: list[str] = []
_declared: list[Any] = []
_C10D = "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend"
_STORE_PARAMETERS = (
    *("host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers", "multi_tenant"),
    *("master_listen_fd", "use_libuv"),
)
_LOOPBACK = "127.0.0.1"


def keeps_rendezvous_private() -> bool:
    """Return True if the installed torch loads this plug-in."""
    try:
        major, minor = map(int, version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return False
    return (major, minor) >= (2, 5)


def write_plugin(folder: Path) -> None:
    """Write the plug-in into a folder that is then put on a PYTHONPATH."""
    about = folder / "gpuconsole_loopback-1.dist-info"
    about.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(__file__, folder / "gpuconsole_loopback.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuconsole-loopback\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nloopback = gpuconsole_loopback:install\n")


def install() -> None:
    """Patch torch in this process; torch calls it at the end of its import."""
    distributed: Any = sys.modules["torch"].distributed
    if distributed.is_available():
        _bind_to_loopback(distributed.TCPStore)
        if os.environ.get("GPUCONSOLE_SANDBOX"):
            _rendezvous_at_files(distributed)
            sys.meta_path.insert(0, _ChangedModule(_STATIC, _exec_static))
        sys.meta_path.insert(0, _ChangedModule(_C10D, _exec_c10d))
        if os.environ.get(SIMULATED_GPUS):
            _replace_nccl(distributed)
    sys.meta_path.insert(0, _ChangedModule(_TORCHVISION, _exec_torchvision))


def _replace_nccl(distributed: Any) -> None:
    for name in ("init_process_group", "new_group"):
        original = getattr(distributed, name)

        def make_group(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            given = inspect.signature(_original).bind_partial(*args, **kwargs).arguments
            if "nccl" in str(given.get("backend")).lower():
                if os.environ.get("LOCAL_RANK", "0") == "0" and not _told:
                    _told.append(NCCL_REPLACED)
                    print(NCCL_REPLACED, file=sys.stderr, flush=True)
                given["backend"] = "gloo"
                given.pop("device_id", None)
            return _original(**given)

        for module in (distributed, distributed.distributed_c10d):
            setattr(module, name, make_group)


def _bind_to_loopback(store: Any) -> None:
    original: Callable[..., None] = store.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(_STORE_PARAMETERS, args, strict=False)) | kwargs
        if not given.get("is_master"):
            if _is_this_machine(str(given["host_name"])):
                given["host_name"] = _LOOPBACK
        elif given.get("master_listen_fd") is None:
            given["host_name"] = _LOOPBACK
            # A taken port may be this process's own store, which torch shares: let it say.
            if (listening := _listen(int(given["port"]))) is not None:
                given |= {"port": listening.getsockname()[1], "master_listen_fd": listening.detach()}
        original(self, **given)

    store.__init__ = __init__


def _rendezvous_at_files(distributed: Any) -> None:
    rendezvous: Any = sys.modules[f"{distributed.__name__}.rendezvous"]
    create: Callable[..., Any] = rendezvous._create_c10d_store
    meetings: dict[int, int] = {}

    def create_store(hostname: str, port: int, rank: int, world_size: int, timeout: Any, *more: Any) -> Any:
        is_agents = rendezvous._torchelastic_use_agent_store()
        if not port or not _is_this_machine(hostname):
            return create(hostname, port, rank, world_size, timeout, *more)
        # A process that initialises again must not find the keys of the time before. All ranks count alike.
        meetings[port] = meetings.get(port, 0) + 1
        name = f"{port}-agent" if is_agents else f"{port}-{meetings[port]}"
        return _file_store(distributed, name, rank == 0 and not is_agents, timeout)

    rendezvous._create_c10d_store = create_store


def _exec_static(load: Callable[[Any], None], static: Any) -> None:
    load(static)
    tcp_store = static.TCPStore

    def create_store(
        host: str, port: int, world_size: int, is_master: bool, timeout: Any, **more: Any
    ) -> Any:
        if not port or not _is_this_machine(host):
            return tcp_store(host, port, world_size, is_master, timeout, **more)
        return _file_store(sys.modules["torch"].distributed, f"{port}-agent", is_master, timeout)

    static.TCPStore = create_store


def _file_store(distributed: Any, name: str, is_master: bool, timeout: Any) -> Any:
    """Open a named store: rank 0 creates it, the others wait for it.

    Raises:
        RuntimeError: Another living process created it, or none did within `timeout`.
    """
    folder = Path(os.environ["GPUCONSOLE_SANDBOX"], _STORES)
    folder.mkdir(mode=0o700, exist_ok=True)
    link = folder / name
    port = name.partition("-")[0]
    if is_master:
        if (made := _living(link)) and _maker_of(made) != str(os.getpid()):
            raise RuntimeError(f"The rendezvous failed to listen on port: {port}, EADDRINUSE")
        path = _make_file(link)
    else:
        deadline = time.monotonic() + timeout.total_seconds()
        while not (path := _living(link)):
            if time.monotonic() >= deadline:
                raise RuntimeError(f"Rank 0 has not opened the rendezvous at port {port} in {timeout}.")
            time.sleep(_POLL_S)
        path = _link_while_alive(path)
    store = distributed.FileStore(path)
    store.set_timeout(timeout)
    return store


def _link_while_alive(path: str) -> str:
    # The link breaks when the process that made the file ends: ranks that wait for a key then fail at once,
    # as with a TCPStore, instead of waiting for the timeout.
    link = os.path.join(tempfile.mkdtemp(prefix=f"{_FILE}-{os.getpid()}-"), "store")
    os.symlink(path, link)

    def watch() -> None:
        with suppress(ProcessLookupError):
            maker = os.pidfd_open(int(_maker_of(path)))
            select.select([maker], [], [])
            os.close(maker)
        # A loop (ELOOP): FileStore waits for a file that is only missing.
        os.symlink("store", f"{link}-gone")
        os.replace(f"{link}-gone", link)

    if hasattr(os, "pidfd_open"):
        threading.Thread(target=watch, name="rendezvous", daemon=True).start()
    return link


def _make_file(link: Path) -> str:
    descriptor, path = tempfile.mkstemp(prefix=f"{_FILE}-{os.getpid()}-")
    os.close(descriptor)
    fresh = link.with_name(f"{link.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path)
    fresh.replace(link)
    return path


def _living(link: str | Path) -> str:
    """Return the target of `link` if the process that made it is alive; else an empty string."""
    with suppress(OSError):
        path = os.readlink(link)
        if os.path.exists(f"/proc/{_maker_of(path)}"):
            return path
    return ""


def _listen(port: int) -> socket.socket | None:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        return None
    return listening


def _is_this_machine(host: str) -> bool:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


class _ChangedModule(importlib.abc.MetaPathFinder):
    """Import hook that patches one module when it is imported."""

    def __init__(self, name: str, execute: Callable[[Callable[[Any], None], Any], None]) -> None:
        self._name = name
        self._execute = execute

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module
            loader.exec_module = lambda module: self._execute(load, module)
        return spec


def _exec_torchvision(load: Callable[[Any], None], module: Any) -> None:
    # The import fails where torchvision's operators are missing; it succeeds with two of them declared.
    try:
        load(module)
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        torch: Any = sys.modules["torch"]
        declared = torch.library.Library("torchvision", "DEF")
        _declared.append(declared)
        for operator in ("nms", "qnms"):
            declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        load(module)


def _exec_c10d(load: Callable[[Any], None], backend: Any) -> None:
    load(backend)
    call_store = backend.C10dRendezvousBackend._call_store
    files: list[_RendezvousFile] = []

    def create_store(params: Any) -> Any:
        os.environ.setdefault(_NOT_SHARED, "1")
        files.append(_RendezvousFile(str(params.endpoint)))
        if not files[-1].is_there(_HOST_STARTS_WITHIN_S):
            raise backend.RendezvousConnectionError(f"{files[-1].host} has not opened the rendezvous.")
        return backend.FileStore(files[-1].path)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if files and not files[-1].is_there():
            raise backend.RendezvousConnectionError(f"{files[-1].host}, which had the rendezvous, is gone.")
        return call_store(self, *args, **kwargs)

    backend._create_tcp_store = create_store
    backend.C10dRendezvousBackend._call_store = call


class _RendezvousFile:
    """File in place of a c10d store; it exists as long as the process that would serve that store."""

    def __init__(self, endpoint: str) -> None:
        """Create the file if `endpoint` names this pod or none."""
        ours, uid = os.environ.get("HOSTNAME", ""), os.environ.get("GPUCONSOLE_POD_UID", "")
        named = endpoint.rpartition(":")[0].partition(".")[0]
        if endpoint.endswith(":0") or not uid:
            named = ours
        elif named in ("", "127", "localhost"):
            named = os.environ.get(RENDEZVOUS_HOST) or ours
        self.host = named
        self.path = ""
        """Empty until the file was found."""
        self._is_ours = named == ours
        if not self._is_ours:
            return
        if uid:
            self.path = _make_file(Path(os.environ["GPUCONSOLE_SANDBOX"], "pods", uid, _FILE))
        else:
            descriptor, self.path = tempfile.mkstemp(prefix=f"{_FILE}-{os.getpid()}-")
            os.close(descriptor)

    def is_there(self, within_s: float = 0.0) -> bool:
        """Return True if the file exists, or appears within `within_s`."""
        deadline = time.monotonic() + within_s
        while not self._is_ours:
            # The name of a running pod leads to its container's folder, which is in the pod's.
            container = os.path.realpath(Path(os.environ.get("GPUCONSOLE_HOSTS", ""), self.host))
            found = _living(os.path.join(os.path.dirname(container), _FILE))
            if found and self.path in ("", found):
                self.path = found
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def _maker_of(path: str) -> str:
    # File names carry the process id of their creator.
    return os.path.basename(path).split("-")[1]
