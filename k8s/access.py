"""Where the cluster is and how to log in, read by the kubernetes package from a kubeconfig.

The package is slow to import, so it is imported when a cluster is first reached, not at start.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from k8s.errors import NoCluster, Unauthorized

SANDBOX_HINT = "Point KUBECONFIG at one, or try the single-machine cluster: gpuconsole --sandbox"
_CONTENTS = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(slots=True)
class Access:
    """How to reach one cluster as one user. Also what the kubernetes package fills in."""

    host: str = ""
    """Base address, as `https://10.0.0.1:6443`."""
    context: str = ""
    """Name of the kubeconfig's context; `in-cluster` inside a pod."""
    namespace: str = "default"
    user: str = ""
    """The kubeconfig's name for the user."""
    api_key: dict[str, str] = field(default_factory=dict)
    """`BearerToken` to the whole Authorization header."""
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    refresh_api_key_hook: Any = None
    """Set by the in-cluster loader: rereads the token file when it is a minute old."""
    loader: Any = None
    """The kubeconfig loader, to run exec plug-ins and read token files again."""

    @property
    def is_local(self) -> bool:
        """Tell whether the server is on this machine."""
        return urlsplit(self.host).hostname in ("127.0.0.1", "localhost", "::1")

    def authorization(self) -> str:
        """Return the Authorization header, empty when a certificate does the work."""
        if self.refresh_api_key_hook is not None:
            with suppress(Exception):  # the token file may be half written: then the old token has to do
                self.refresh_api_key_hook(self)
        return self.api_key.get("BearerToken", "")

    async def renew(self) -> None:
        """Log in again: run the exec plug-in, reread the token file.

        Raises:
            Unauthorized: It did not work.
        """
        if self.loader is None:
            return
        self.loader.__dict__.pop("exec_plugin_expiry", None)
        with _Overheard() as overheard:
            try:
                await self.loader.load_and_set(self)
            except Exception as error:  # a login may fail in any of the package's plug-ins
                overheard.complaints.append(_words(error))
        if overheard.complaints:
            hint = "Log in to the cluster again, then press ctrl+r."
            raise Unauthorized("Could not log in again.", overheard.complaints[-1], hint)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings; None for a server without TLS.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        if not self.host.startswith("https"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_cert)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ValueError) as error:
            paths = ", ".join(path for path in (self.ssl_ca_cert, self.cert_file, self.key_file) if path)
            raise NoCluster("This kubeconfig cannot be used.", f"{paths}: {error}", SANDBOX_HINT) from error
        if not self.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def kubeconfig_files() -> list[Path]:
    """Return the kubeconfig files that kubectl would merge, those that exist."""
    text = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for part in text.split(os.pathsep) if part and (path := Path(part).expanduser()).is_file()]


async def load(kubeconfig: str = "", context: str = "", namespace: str = "") -> Access:
    """Read how to reach the cluster: this kubeconfig, or kubectl's own, or from inside a pod.

    Raises:
        NoCluster: There is none, or it cannot be used; the hint offers the sandbox.
    """
    from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
    from yaml import YAMLError

    if kubeconfig and not Path(kubeconfig).expanduser().is_file():
        raise NoCluster("No cluster to talk to.", f"There is no kubeconfig at {kubeconfig}.", SANDBOX_HINT)
    files = [Path(kubeconfig).expanduser()] if kubeconfig else kubeconfig_files()
    access = Access()
    if not files:
        try:
            load_incluster_config(client_configuration=access)
        except ConfigException as error:
            named = os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise NoCluster(
                "No cluster to talk to.", f"There is no kubeconfig at {named}.", SANDBOX_HINT
            ) from error
        access.context = "in-cluster"
        access.namespace = namespace or _pod_namespace()
        return access
    names = os.pathsep.join(str(path) for path in files)
    what = "This kubeconfig cannot be used."
    with _Overheard() as overheard:
        try:
            loader = await load_kube_config(
                config_file=names, context=context or None, client_configuration=access
            )
        except (ConfigException, YAMLError, OSError, ValueError) as error:
            raise NoCluster(what, f"{names}: {_words(error)}", SANDBOX_HINT) from error
        except (TypeError, KeyError, AttributeError) as error:
            raise NoCluster(what, f"{names} is not a kubeconfig.", SANDBOX_HINT) from error
    if overheard.complaints:
        hint = "Run the login command of your kubeconfig by hand to see what it lacks."
        raise NoCluster("Could not log in to the cluster.", overheard.complaints[-1], hint)
    if not access.host:
        raise NoCluster(what, f"{names} names no server.", SANDBOX_HINT)
    chosen = loader.current_context
    details = chosen.get("context") or {}
    access.loader = loader
    access.context = str(chosen.get("name", ""))
    access.user = str(details.get("user", ""))
    access.namespace = namespace or str(details.get("namespace") or "default")
    return access


def _pod_namespace() -> str:
    path = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return path.read_text().strip() if path.is_file() else "default"


class _Overheard(logging.Handler):
    """Keeps what the kubernetes package only logs, as a login command that failed, off the terminal."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.complaints: list[str] = []
        self._logger = logging.getLogger("kubernetes.aio.config.kube_config")

    def emit(self, record: logging.LogRecord) -> None:
        """Take a complaint."""
        self.complaints.append(_without_contents(record.getMessage()))

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True


def _words(error: Exception) -> str:
    return _without_contents(str(error) or type(error).__name__)


def _without_contents(words: str) -> str:
    """Cut out what the package quotes of the kubeconfig or of a login's answer: tokens may be in it."""
    return _CONTENTS.sub("{…}", words)[:500]
