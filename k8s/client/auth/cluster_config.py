"""Where the cluster is and by which credentials: a kubeconfig's context, or the pod we run in.

The kubernetes package fetches tokens from identity providers: OIDC, GCP. It takes longer to import than
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
from k8s.errors import UNAUTHORIZED_HINT, NoCluster, Unauthorized
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
    exec_plugin: ExecPlugin | None = None
    """The command that prints credentials."""
    auth_provider: Any = None
    """The kubernetes package's `KubeConfigLoader` where the user names an auth provider: OIDC, GCP."""
    inline: Credentials = field(default_factory=Credentials, repr=False)
    """The client certificate that the kubeconfig itself holds, as `client-certificate-data`."""
    _issued: Credentials = field(default_factory=Credentials, repr=False)
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
    def unauthorized_hint(self) -> str:
        """Return what to do when the server does not know who asks."""
        return (
            f"Login expired: run {self.exec_plugin.shown}, then try again."
            if self.exec_plugin
            else UNAUTHORIZED_HINT
        )

    def authorization(self) -> str:
        """Return the Authorization header, empty when a certificate does the work."""
        if self.token_file and time.monotonic() - self._token_read_s >= self.token_file_s:
            with suppress(OSError, ValueError):  # it may be half written: then the old token has to do
                self._read_token_file()
        return self.api_key.get("BearerToken", "")

    def identity(self) -> tuple[str, str]:
        """Return what tells credentials apart: the Authorization header, a digest of the certificate."""
        return self.authorization(), self._certificate

    async def renew(self) -> None:
        """Fetch new credentials: run the exec plugin, reread the token file and the certificate.

        Raises:
            Unauthorized: It did not work.
        """
        try:
            await self._fetch_credentials()
        except ExecPluginFailed as error:
            run = f"Login expired: run {self.exec_plugin.shown}. It says: " if self.exec_plugin else ""
            raise Unauthorized("Could not log in again.", f"{run}{error}", UNAUTHORIZED_HINT) from None
        except (OSError, ValueError) as error:
            raise Unauthorized(
                "Could not log in again.", without_secrets(str(error)), UNAUTHORIZED_HINT
            ) from None

    async def _fetch_credentials(self) -> None:
        """Fetch credentials from wherever they come.

        Raises:
            ExecPluginFailed: The exec plugin, or the auth provider, gave none.
            OSError, ValueError: The token file cannot be used.
        """
        if self.exec_plugin is not None:
            self._issued = issued = await self.exec_plugin.run()
            if issued.token:
                self.api_key["BearerToken"] = _bearer(issued.token)
            # By a clock that is ahead of theirs everything is over at once: then only a 401 tells.
            is_useful = issued.expires is not None and issued.expires > datetime.now(UTC)
            self.expires = issued.expires if is_useful else None
        if self.auth_provider is not None:
            try:
                await self.auth_provider.load_and_set(self)
            except Exception as error:  # whatever an identity provider, or the package's part for it, does
                raise ExecPluginFailed(without_secrets(str(error)) or type(error).__name__) from None
        if self.token_file:
            self._read_token_file()
        self._note_certificate()

    def _read_token_file(self) -> None:
        self._token_read_s = time.monotonic()
        self.api_key["BearerToken"] = _bearer(Path(self.token_file).read_text(encoding="utf-8"))

    def _note_certificate(self) -> None:
        pem = self._client_pem
        digest = hashlib.sha256((pem.certificate + pem.key).encode())
        for path in (self.cert_file, self.key_file):
            with suppress(OSError):  # `ssl_context` says what is wrong with it
                digest.update(Path(path).read_bytes() if path else b"")
        self._certificate = digest.hexdigest()

    @property
    def _client_pem(self) -> Credentials:
        """Return the client certificate that is in no file: the exec plugin's, else the kubeconfig's."""
        return self._issued if self._issued.certificate else self.inline

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings with the newest certificate; None for a server without TLS.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        if not self.host.startswith("https"):
            return None
        pem = self._client_pem
        try:
            context = ssl.create_default_context(
                cafile=None if self.ssl_ca_pem else self.ssl_ca_cert, cadata=self.ssl_ca_pem or None
            )
            if pem.certificate:
                with tempfile.TemporaryDirectory() as folder:  # Python reads certificates from files only
                    both = Path(folder, "client.pem")
                    both.touch(0o600)
                    both.write_text(f"{pem.certificate.strip()}\n{pem.key.strip()}\n")
                    _load_certificate(context, str(both), None)
            elif self.cert_file:
                _load_certificate(context, self.cert_file, self.key_file)
        except (OSError, ValueError) as error:
            named = [path for path in (self.ssl_ca_cert, self.cert_file, self.key_file) if path]
            where = ", ".join(named) or "The client certificate"
            raise NoCluster(UNUSABLE, sanitize(f"{where}: {error}"), SANDBOX_HINT) from error
        if not self.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def load(
    kubeconfig: str = "", context: str = "", namespace: str = "", *, service_account: Path = SERVICE_ACCOUNT
) -> ClusterConfig:
    """Read this kubeconfig, or kubectl's own, or a pod's service account; and fetch credentials.

    Raises:
        NoCluster: There is none, or it cannot be used; the hint offers the sandbox.
    """
    merged = read_kubeconfig(kubeconfig)
    if not merged.files:
        return _in_cluster(namespace, service_account)
    resolved = merged.resolve(context)
    files = ", ".join(str(path) for path in merged.files)
    try:
        config = await _from_context(resolved)
    except ExecPluginFailed as error:
        hint = "Run the exec plugin of your kubeconfig by hand to see what it lacks."
        raise NoCluster("Could not log in to the cluster.", str(error), hint) from None
    except (OSError, ValueError) as error:
        why = f"{files}: {without_secrets(str(error))}"
        raise NoCluster(UNUSABLE, sanitize(why), SANDBOX_HINT) from None
    config.namespace = namespace or config.namespace
    return config


async def _from_context(resolved: ResolvedContext) -> ClusterConfig:
    where, user, cluster = resolved.context, resolved.user, resolved.cluster
    config = ClusterConfig(
        host=where.server.rstrip("/"),
        context=where.name,
        user=where.user,
        namespace=where.namespace,
        token_file=str(user.get("tokenFile", "")),
        verify_ssl=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.get("tls-server-name"),
    )
    if config.host.startswith("https"):
        _read_certificates(config, cluster, user)
    config.proxy = _proxy(cluster.get("proxy-url"), config.host)
    if token := user.get("token"):
        config.api_key["BearerToken"] = _bearer(str(token))
    elif isinstance(plugin := user.get("exec"), Mapping):
        config.exec_plugin = ExecPlugin.from_user(plugin, cluster)
    elif "auth-provider" in user:
        config.auth_provider = _auth_provider_of(resolved)
    elif "username" in user and "password" in user:
        both = base64.b64encode(f"{user['username']}:{user['password']}".encode())
        config.api_key["BearerToken"] = f"Basic {both.decode()}"
    await config._fetch_credentials()
    return config


def _read_certificates(config: ClusterConfig, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    """Take over certificates, which a kubeconfig names or holds; what it holds wins.

    Raises:
        OSError: A file that is named is not there.
        ValueError: What is held is not base64.
    """
    config.ssl_ca_cert = _checked_path(cluster.get("certificate-authority"))
    config.ssl_ca_pem = _inline_pem(cluster, "certificate-authority")
    config.cert_file = _checked_path(user.get("client-certificate"))
    config.key_file = _checked_path(user.get("client-key"))
    certificate, key = _inline_pem(user, "client-certificate"), _inline_pem(user, "client-key")
    if certificate or key:
        config.inline = Credentials(
            certificate=certificate or _read_pem(config.cert_file), key=key or _read_pem(config.key_file)
        )
    config._note_certificate()


def _checked_path(path: str | None) -> str | None:
    if path:
        os.stat(path)
    return path


def _inline_pem(entry: Mapping[str, Any], name: str) -> str:
    """Return the PEM that stands in an entry; beside it there may be words in any language."""
    return base64.b64decode(str(entry.get(f"{name}-data", ""))).decode("ascii", "ignore")


def _read_pem(path: str | None) -> str:
    return Path(path).read_text(encoding="ascii", errors="ignore") if path else ""


def _auth_provider_of(resolved: ResolvedContext) -> Any:
    """Return what fetches tokens from an identity provider.

    Raises:
        ExecPluginFailed: The kubeconfig does not say how.
    """
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    where = resolved.context
    user = {key: value for key, value in resolved.user.items() if key != "exec"}
    kubeconfig = {
        "current-context": where.name,
        "contexts": [{"name": where.name, "context": {"cluster": where.cluster, "user": where.user}}],
        "clusters": [{"name": where.cluster, "cluster": dict(resolved.cluster)}],
        "users": [{"name": where.user, "user": user}],
    }
    try:
        return KubeConfigLoader(kubeconfig)
    except Exception as error:  # whatever the package makes of a provider that is none
        raise ExecPluginFailed(without_secrets(str(error)) or type(error).__name__) from None


def _in_cluster(namespace: str, folder: Path) -> ClusterConfig:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    config = ClusterConfig(
        host=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        context=IN_CLUSTER,
        token_file=str(folder / "token"),
    )
    try:
        if not host or not port:
            raise ValueError("this is no pod")
        config.ssl_ca_cert = _checked_path(str(folder / "ca.crt"))
        config._read_token_file()
        config.namespace = namespace or (folder / "namespace").read_text().strip() or "default"
    except (OSError, ValueError) as error:
        named = os.environ.get("KUBECONFIG") or "~/.kube/config"
        why = sanitize(f"There is no kubeconfig at {named}.")
        raise NoCluster("No cluster to talk to.", why, SANDBOX_HINT) from error
    return config


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
