"""Runs at the end of every `import torch` in a pod: what a job's ranks open is open on loopback only.

And what a job is written for, this machine may lack: where GPUs are simulated, gloo works in NCCL's place;
and under a torch without CUDA, torchvision's wheel, which is linked to CUDA, is imported all the same.

torch's TCPStore listens on all addresses, whatever MASTER_ADDR says. Here it is given a socket
that listens on 127.0.0.1. The c10d rendezvous unpickles what anybody wrote into its store, so it
has a file instead, which only the sandbox's user may open, in the folder of the pod that its endpoint names.

torch 2.5 and later find it as a plug-in: `write_plugin` puts it and its entry point, in the
group `torch.backends`, into a folder on the pod's PYTHONPATH. It needs nothing but torch.
"""

import importlib.abc
import importlib.util
import inspect
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

OPEN_RENDEZVOUS = "GPUCONSOLE_OPEN_RENDEZVOUS"
"""Variable of pods whose sandbox was started with `--allow-open-rendezvous`."""
RENDEZVOUS_HOST = "GPUCONSOLE_RENDEZVOUS_HOST"
"""Variable that names the pod which a c10d rendezvous meets at."""
_FILE = "rendezvous"
_HOST_STARTS_WITHIN_S, _TURN_S = 60.0, 0.1
_NOT_SHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With it each round of the rendezvous has a store of its own; in a shared one are dead ranks' keys."""
SIMULATED_GPUS = "GPUCONSOLE_SIMULATED_GPUS"
"""Variable of pods with GPUs that do not exist: their numbers."""
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
    """Tell whether the torch that pods have runs `install`, so that nobody else reaches a c10d rendezvous."""
    try:
        major, minor = map(int, version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return False
    return (major, minor) >= (2, 5)


def write_plugin(folder: Path) -> None:
    """Make a folder that, on a PYTHONPATH, has torch run `install`."""
    about = folder / "gpuconsole_loopback-1.dist-info"
    about.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(__file__, folder / "gpuconsole_loopback.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuconsole-loopback\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nloopback = gpuconsole_loopback:install\n")


def install() -> None:
    """Have every store that this process opens listen on loopback."""
    distributed: Any = sys.modules["torch"].distributed
    if distributed.is_available():
        _bind_to_loopback(distributed.TCPStore)
        sys.meta_path.insert(0, _ChangedModule(_C10D, _exec_c10d))
        if os.environ.get(SIMULATED_GPUS):
            _replace_nccl(distributed)
    sys.meta_path.insert(0, _ChangedModule(_TORCHVISION, _exec_torchvision))


def _replace_nccl(distributed: Any) -> None:
    """Have process groups that ask for NCCL use gloo, and say so once in each pod."""
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
    """Tell whether a name or address is one of this machine's, where its stores listen on loopback."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


class _ChangedModule(importlib.abc.MetaPathFinder):
    """Changes a module when, and if, it is imported."""

    def __init__(self, name: str, execute: Callable[[Callable[[Any], None], Any], None]) -> None:
        self._name = name
        self._execute = execute

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of that one module, which `execute` is to load."""
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
    """Load what fails where torchvision's operators are missing; then again, with two of them declared."""
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
    """Load torch's c10d rendezvous, and have it open no store that others can write into."""
    load(backend)
    create_tcp_store = backend._create_tcp_store
    call_store = backend.C10dRendezvousBackend._call_store
    files: list[_RendezvousFile] = []

    def create_store(params: Any) -> Any:
        if os.environ.get(OPEN_RENDEZVOUS):
            return create_tcp_store(params)
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
    """The file in place of a c10d store: there as long as the process that would serve that store."""

    def __init__(self, endpoint: str) -> None:
        """Make it, if this is the pod that `endpoint` names or none is named; else it is looked for there."""
        ours, uid = os.environ.get("HOSTNAME", ""), os.environ.get("GPUCONSOLE_POD_UID", "")
        named = endpoint.rpartition(":")[0].partition(".")[0]
        if endpoint.endswith(":0") or not uid:
            named = ours
        elif named in ("", "127", "localhost"):
            named = os.environ.get(RENDEZVOUS_HOST) or ours
        self.host = named
        """The pod."""
        self.path = ""
        """Where it is; empty until it was there."""
        self._is_ours = named == ours
        if not self._is_ours:
            return
        descriptor, self.path = tempfile.mkstemp(prefix=f"{_FILE}-{os.getpid()}-")
        os.close(descriptor)
        if uid:
            link = Path(os.environ["GPUCONSOLE_SANDBOX"], "pods", uid, _FILE)
            fresh = link.with_name(f"{_FILE}-{os.getpid()}")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(self.path)
            fresh.replace(link)

    def is_there(self, within_s: float = 0.0) -> bool:
        """Tell whether the process that made it still has it, or one will within a time."""
        deadline = time.monotonic() + within_s
        while not self._is_ours:
            with suppress(OSError):
                # The name of a running pod leads to its container's folder, which is in the pod's.
                container = os.path.realpath(Path(os.environ.get("GPUCONSOLE_HOSTS", ""), self.host))
                found = os.readlink(os.path.join(os.path.dirname(container), _FILE))
                if self.path in ("", found) and os.path.exists(f"/proc/{_maker_of(found)}"):
                    self.path = found
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_TURN_S)
        return True


def _maker_of(path: str) -> str:
    """Return the id of the process that made a file for a rendezvous."""
    return os.path.basename(path).split("-")[1]
