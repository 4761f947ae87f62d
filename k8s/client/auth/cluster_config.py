"""Where the cluster is and how to log in: a kubeconfig's context, or the pod we run in.

The kubernetes package logs in at identity providers: OIDC, GCP. It takes longer to import than
all else until rows are shown, so it is imported where a kubeconfig names one of these, and nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from k8s.client.auth.exec_plugin import Credentials, ExecPlugin, ExecPluginFailed, without_secrets
from k8s.client.auth.kubeconfig import SANDBOX_HINT, UNUSABLE, ResolvedContext, read_kubeconfig
from k8s.client.auth.proxy import proxy_from
from k8s.errors import LOGIN_HINT, NoCluster, Unauthorized
from k8s.text.sanitize import sanitize

__all__ = ["SANDBOX_HINT", "ClusterConfig", "load"]

IN_CLUSTER = "in-cluster"
"""What stands for a context's name inside a pod."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, certificate authority and namespace."""
TOKEN_FILE_S = 60.0
"""How long a token from a file is used before the file is read again. Source: client-go."""


@dataclass(slots=True)
class ClusterConfig:
    """How to reach one cluster as one user. Also what the kubernetes package fills in."""

    host: str = ""
    """Base address, as `https://10.0.0.1:6443`."""
    context: str = ""
    """Name of the kubeconfig's context; `in-cluster` inside a pod."""
    namespace: str = "default"
    user: str = ""
    """The kubeconfig's name for the user."""
    api_key: dict[str, str] = field(default_factory=dict, repr=False)
    """`BearerToken` to the whole Authorization header."""
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    ssl_ca_pem: str = field(default="", repr=False)
    """The certificate authority itself, where it stands in the kubeconfig; it wins over the file."""
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    token_file: str = ""
    """File that holds the token; it wins over `api_key`."""
    token_file_s: float = TOKEN_FILE_S
    """How long a token from that file is used before it is read again."""
    command: ExecPlugin | None = None
    """What prints credentials when it is run."""
    loader: Any = None
    """The package's loader, where it can log in by itself: OIDC, GCP."""
    own: Credentials = field(default_factory=Credentials, repr=False)
    """The certificate that stands in the kubeconfig itself."""
    _given: Credentials = field(default_factory=Credentials, repr=False)
    expires: datetime | None = None
    """When the credentials said that they would be over."""
    _certificate: str = ""
    _token_read_s: float = float("-inf")

    def __post_init__(self) -> None:
        """Note which certificate it begins with."""
        self._note_certificate()

    @property
    def is_local(self) -> bool:
        """Tell whether the server is on this machine."""
        return urlsplit(self.host).hostname in ("127.0.0.1", "localhost", "::1")

    @property
    def has_expired(self) -> bool:
        """Tell whether the credentials said that they would be over by now."""
        return self.expires is not None and datetime.now(UTC) >= self.expires

    @property
    def login_hint(self) -> str:
        """Return what to do when the server does not know who asks."""
        return f"Login expired: run {self.command.shown}, then try again." if self.command else LOGIN_HINT

    def authorization(self) -> str:
        """Return the Authorization header, empty when a certificate does the work."""
        if self.token_file and time.monotonic() - self._token_read_s >= self.token_file_s:
            with suppress(OSError, ValueError):  # it may be half written: then the old token has to do
                self._read_token_file()
        return self.api_key.get("BearerToken", "")

    def identity(self) -> tuple[str, str]:
        """Return what tells one login from another: the header, and a digest of the certificate."""
        return self.authorization(), self._certificate

    async def renew(self) -> None:
        """Log in again: run the login command, reread the token and the certificate.

        Raises:
            Unauthorized: It did not work.
        """
        try:
            await self._log_in()
        except ExecPluginFailed as error:
            run = f"Login expired: run {self.command.shown}. It says: " if self.command else ""
            raise Unauthorized("Could not log in again.", f"{run}{error}", LOGIN_HINT) from None
        except (OSError, ValueError) as error:
            raise Unauthorized("Could not log in again.", without_secrets(str(error)), LOGIN_HINT) from None

    async def _log_in(self) -> None:
        """Fetch credentials from wherever they come.

        Raises:
            LoginFailed: A login command, or an identity provider, gave none.
            OSError, ValueError: The token file cannot be used.
        """
        if self.command is not None:
            self._given = given = await self.command.run()
            if given.token:
                self.api_key["BearerToken"] = _bearer(given.token)
            # By a clock that is ahead of theirs everything is over at once: then only a 401 tells.
            is_useful = given.expires is not None and given.expires > datetime.now(UTC)
            self.expires = given.expires if is_useful else None
        if self.loader is not None:
            try:
                await self.loader.load_and_set(self)
            except Exception as error:  # whatever an identity provider, or the package's part for it, does
                raise ExecPluginFailed(without_secrets(str(error)) or type(error).__name__) from None
        if self.token_file:
            self._read_token_file()
        self._note_certificate()

    def _read_token_file(self) -> None:
        self._token_read_s = time.monotonic()
        self.api_key["BearerToken"] = _bearer(Path(self.token_file).read_text(encoding="utf-8"))

    def _note_certificate(self) -> None:
        shown = self._shown
        digest = hashlib.sha256((shown.certificate + shown.key).encode())
        for path in (self.cert_file, self.key_file):
            with suppress(OSError):  # `ssl_context` says what is wrong with it
                digest.update(Path(path).read_bytes() if path else b"")
        self._certificate = digest.hexdigest()

    @property
    def _shown(self) -> Credentials:
        """Return the certificate to show that is in no file: of two, the newer one."""
        return self._given if self._given.certificate else self.own

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings with the newest certificate; None for a server without TLS.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        if not self.host.startswith("https"):
            return None
        shown = self._shown
        try:
            context = ssl.create_default_context(
                cafile=None if self.ssl_ca_pem else self.ssl_ca_cert, cadata=self.ssl_ca_pem or None
            )
            if shown.certificate:
                with tempfile.TemporaryDirectory() as folder:  # Python reads certificates from files only
                    both = Path(folder, "login.pem")
                    both.touch(0o600)
                    both.write_text(f"{shown.certificate.strip()}\n{shown.key.strip()}\n")
                    _load_certificate(context, str(both), None)
            elif self.cert_file:
                _load_certificate(context, self.cert_file, self.key_file)
        except (OSError, ValueError) as error:
            named = [path for path in (self.ssl_ca_cert, self.cert_file, self.key_file) if path]
            where = ", ".join(named) or "The login's certificate"
            raise NoCluster(UNUSABLE, sanitize(f"{where}: {error}"), SANDBOX_HINT) from error
        if not self.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def load(
    kubeconfig: str = "", context: str = "", namespace: str = "", *, service_account: Path = SERVICE_ACCOUNT
) -> ClusterConfig:
    """Read how to reach the cluster: this kubeconfig, or kubectl's own, or from inside a pod; and log in.

    Raises:
        NoCluster: There is none, or it cannot be used; the hint offers the sandbox.
    """
    config = read_kubeconfig(kubeconfig)
    if not config.files:
        return _in_cluster(namespace, service_account)
    chosen = config.choose(context)
    files = ", ".join(str(path) for path in config.files)
    try:
        access = await _access_of(chosen)
    except ExecPluginFailed as error:
        hint = "Run the login command of your kubeconfig by hand to see what it lacks."
        raise NoCluster("Could not log in to the cluster.", str(error), hint) from None
    except (OSError, ValueError) as error:
        why = f"{files}: {without_secrets(str(error))}"
        raise NoCluster(UNUSABLE, sanitize(why), SANDBOX_HINT) from None
    access.namespace = namespace or access.namespace
    return access


async def _access_of(chosen: ResolvedContext) -> ClusterConfig:
    where, user, cluster = chosen.context, chosen.user, chosen.cluster
    access = ClusterConfig(
        host=where.server.rstrip("/"),
        context=where.name,
        user=where.user,
        namespace=where.namespace,
        token_file=str(user.get("tokenFile", "")),
        verify_ssl=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.get("tls-server-name"),
    )
    if access.host.startswith("https"):
        _read_certificates(access, cluster, user)
    access.proxy = _proxy(cluster.get("proxy-url"), access.host)
    if token := user.get("token"):
        access.api_key["BearerToken"] = _bearer(str(token))
    elif isinstance(login := user.get("exec"), Mapping):
        access.command = ExecPlugin.from_user(login, cluster)
    elif "auth-provider" in user:
        access.loader = _provider_of(chosen)
    elif "username" in user and "password" in user:
        both = base64.b64encode(f"{user['username']}:{user['password']}".encode())
        access.api_key["BearerToken"] = f"Basic {both.decode()}"
    await access._log_in()
    return access


def _read_certificates(access: ClusterConfig, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    """Take over certificates, which a kubeconfig names or holds; what it holds wins.

    Raises:
        OSError: A file that is named is not there.
        ValueError: What is held is not base64.
    """
    access.ssl_ca_cert = _existing(cluster.get("certificate-authority"))
    access.ssl_ca_pem = _held(cluster, "certificate-authority")
    access.cert_file = _existing(user.get("client-certificate"))
    access.key_file = _existing(user.get("client-key"))
    certificate, key = _held(user, "client-certificate"), _held(user, "client-key")
    if certificate or key:
        access.own = Credentials(
            certificate=certificate or _text(access.cert_file), key=key or _text(access.key_file)
        )
    access._note_certificate()


def _existing(path: str | None) -> str | None:
    if path:
        os.stat(path)
    return path


def _held(entry: Mapping[str, Any], name: str) -> str:
    """Return the PEM that stands in an entry; beside it there may be words in any language."""
    return base64.b64decode(str(entry.get(f"{name}-data", ""))).decode("ascii", "ignore")


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="ascii", errors="ignore") if path else ""


def _provider_of(chosen: ResolvedContext) -> Any:
    """Return what logs in at an identity provider.

    Raises:
        LoginFailed: The kubeconfig does not say how.
    """
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    where = chosen.context
    user = {key: value for key, value in chosen.user.items() if key != "exec"}
    config = {
        "current-context": where.name,
        "contexts": [{"name": where.name, "context": {"cluster": where.cluster, "user": where.user}}],
        "clusters": [{"name": where.cluster, "cluster": dict(chosen.cluster)}],
        "users": [{"name": where.user, "user": user}],
    }
    try:
        return KubeConfigLoader(config)
    except Exception as error:  # whatever the package makes of a provider that is none
        raise ExecPluginFailed(without_secrets(str(error)) or type(error).__name__) from None


def _in_cluster(namespace: str, folder: Path) -> ClusterConfig:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    access = ClusterConfig(
        host=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        context=IN_CLUSTER,
        token_file=str(folder / "token"),
    )
    try:
        if not host or not port:
            raise ValueError("this is no pod")
        access.ssl_ca_cert = _existing(str(folder / "ca.crt"))
        access._read_token_file()
        access.namespace = namespace or (folder / "namespace").read_text().strip() or "default"
    except (OSError, ValueError) as error:
        named = os.environ.get("KUBECONFIG") or "~/.kube/config"
        why = sanitize(f"There is no kubeconfig at {named}.")
        raise NoCluster("No cluster to talk to.", why, SANDBOX_HINT) from error
    return access


def _proxy(named: str | None, host: str) -> str | None:
    """Return the proxy that a kubeconfig names, or else the environment.

    Raises:
        ValueError: It is of a kind that we do not speak.
    """
    proxy = named or proxy_from(os.environ, host)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ValueError(f"only http and https proxies can be used, not {urlsplit(proxy).scheme or 'this'}")
    return proxy or None


def _bearer(token: str) -> str:
    """Return the header for a token.

    Raises:
        ValueError: It is no token.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("the token is empty or holds characters that no token has")
    return f"Bearer {token}"


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    # Without a password of ours OpenSSL asks for one on the terminal, which the console draws on.
    context.load_cert_chain(certificate, key, password=lambda: "")
