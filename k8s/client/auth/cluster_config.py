"""Address and credentials of one cluster, from a kubeconfig context or a pod's service account.

The kubernetes package fetches tokens from identity providers (OIDC, GCP). It is slow to import, so
it is imported only for a kubeconfig that names such a provider.
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
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from k8s.client.auth.exec_plugin import (
    Credentials,
    ExecPlugin,
    ExecPluginFailed,
    LoginDialog,
    NeedsTerminal,
    without_secrets,
)
from k8s.client.auth.kubeconfig import (
    SANDBOX_HINT,
    UNUSABLE,
    ConfigOverrides,
    Context,
    Kubeconfig,
    ResolvedContext,
    read_kubeconfig,
)
from k8s.client.auth.proxies import is_loopback, proxy_for
from k8s.text.errors import UNAUTHORIZED_HINT, NoCluster, Unauthorized
from k8s.text.home import file_problem, read_named_file
from k8s.text.sanitize import sanitize

__all__ = ["SANDBOX_HINT", "ClusterConfig", "load"]

# Stands for a context name inside a pod.
IN_CLUSTER = "in-cluster"
# Token, certificate authority and namespace of a pod.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PEM_HINT = "Correct it in the kubeconfig, or get a new kubeconfig."
# Seconds before a token file is read again. Source: client-go.
TOKEN_FILE_S = 60.0


@dataclass(slots=True)
class ClusterConfig:
    """Address and credentials of one cluster for one user. The kubernetes package fills it in, too."""

    host: str = ""
    context: str = ""
    namespace: str = "default"
    user: str = ""
    username: str = ""
    """The API's name for the user; empty until the server has been asked."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers of every request; empty unless the kubeconfig impersonates a user."""
    api_key: dict[str, str] = field(default_factory=dict, repr=False)
    """`BearerToken` to the whole Authorization header."""
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    ssl_ca_pem: str = field(default="", repr=False)
    """Certificate authority from the kubeconfig itself; wins over `ssl_ca_cert`."""
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    token_file: str = ""
    """Wins over `api_key`."""
    token_file_s: float = TOKEN_FILE_S
    exec_plugin: ExecPlugin | None = None
    auth_provider: Any = None
    """The kubernetes package's `KubeConfigLoader`; None unless the user names an auth provider."""
    inline: Credentials = field(default_factory=Credentials, repr=False)
    """The client certificate in the kubeconfig itself: `client-certificate-data`."""
    _issued: Credentials = field(default_factory=Credentials, repr=False)
    expires: datetime | None = None
    refused: tuple[str, str] = field(default=("", ""), repr=False)
    """The `identity` that the server refused last."""
    _certificate: str = ""
    _token_read_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._record_certificate()

    @property
    def is_local(self) -> bool:
        """Return True if the server is on this machine."""
        return is_loopback(urlsplit(self.host).hostname or "")

    @property
    def acts_as(self) -> str:
        """Return the impersonated user and groups; empty without impersonation."""
        groups = ", ".join(value for name, value in self.impersonation if name == "Impersonate-Group")
        return self.acting_user + (f" (groups: {groups})" if groups else "") if self.impersonation else ""

    @property
    def acting_user(self) -> str:
        """Return the API's name for the effective user, else the kubeconfig's name for the user."""
        return self.username or dict(self.impersonation).get("Impersonate-User", self.user)

    @property
    def known_username(self) -> str:
        """Return the API's name for the user if it is known without a request; else empty.

        Without impersonation or a token it is the common name of the client certificate.
        """
        if (name := self.username or dict(self.impersonation).get("Impersonate-User", "")) or self.api_key:
            return name
        from cryptography import x509

        with suppress(OSError, ValueError):
            pem = self._client_pem.certificate or _read_pem(self.cert_file)
            subject = x509.load_pem_x509_certificate(pem.encode()).subject
            return next((str(each.value) for each in subject if each.oid == x509.NameOID.COMMON_NAME), "")
        return ""

    @property
    def has_expired(self) -> bool:
        """Return True if the credentials have passed their announced expiry."""
        return self.expires is not None and datetime.now(UTC) >= self.expires

    @property
    def unauthorized_hint(self) -> str:
        """Return the advice for a 401."""
        return (
            f"Login expired: run {self.exec_plugin.shown}, then try again."
            if self.exec_plugin
            else UNAUTHORIZED_HINT
        )

    def authorization(self) -> str:
        """Return the Authorization header; empty if a certificate is used."""
        if self.token_file and time.monotonic() - self._token_read_s >= self.token_file_s:
            with suppress(OSError, ValueError):  # it may be half written: use the old token until then
                self._read_token_file()
        return self.api_key.get("BearerToken", "")

    @property
    def is_cheap_to_renew(self) -> bool:
        """Return True if all credentials come from files, so that renewing runs no command."""
        return self.exec_plugin is None and self.auth_provider is None

    def reread_files(self) -> None:
        """Reload a token or certificate replaced on disk; ignore a token file that cannot be read."""
        if self.token_file:
            with suppress(OSError, ValueError):
                self._read_token_file()
        self._record_certificate()

    def identity(self) -> tuple[str, str]:
        """Return values that differ for different credentials: Authorization header, certificate digest."""
        return self.authorization(), self._certificate

    async def renew(self) -> None:
        """Fetch new credentials: run the exec plugin, reread the token file and the certificate.

        Raises:
            Unauthorized: The plugin or provider failed, or the token file cannot be used.
        """
        try:
            await self._fetch_credentials()
        except NeedsTerminal as error:
            raise Unauthorized("Could not log in again.", str(error), error.hint) from None
        except ExecPluginFailed as error:
            run = f"Login expired: run {self.exec_plugin.shown}. It says: " if self.exec_plugin else ""
            raise Unauthorized("Could not log in again.", f"{run}{error}", UNAUTHORIZED_HINT) from None
        except (OSError, ValueError) as error:
            raise Unauthorized(
                "Could not log in again.", without_secrets(str(error)), UNAUTHORIZED_HINT
            ) from None

    async def _fetch_credentials(self) -> None:
        if self.exec_plugin is not None:
            self._issued = issued = await self.exec_plugin.run()
            if issued.token:
                self.api_key["BearerToken"] = _bearer(issued.token)
            # If our clock is ahead, everything has expired at once: then rely on 401s.
            is_plausible = issued.expires is not None and issued.expires > datetime.now(UTC)
            self.expires = issued.expires if is_plausible else None
        if self.auth_provider is not None:
            try:
                await self.auth_provider.load_and_set(self)
            except Exception as error:  # anything: providers and the package's code for them vary
                raise ExecPluginFailed(without_secrets(str(error)) or type(error).__name__) from None
        if self.token_file:
            self._read_token_file()
        self._record_certificate()

    def _read_token_file(self) -> None:
        self._token_read_s = time.monotonic()
        self.api_key["BearerToken"] = _bearer(read_named_file(self.token_file).decode())

    def _record_certificate(self) -> None:
        pem = self._client_pem
        digest = hashlib.sha256((pem.certificate + pem.key).encode())
        for path in (self.cert_file, self.key_file):
            with suppress(OSError):  # `ssl_context` reports the problem
                digest.update(read_named_file(path) if path else b"")
        self._certificate = digest.hexdigest()

    @property
    def _client_pem(self) -> Credentials:
        return self._issued if self._issued.certificate else self.inline

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return TLS settings with the newest certificate; None for a plain-http server.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        if urlsplit(self.host).scheme != "https":
            return None
        pem = self._client_pem
        try:
            context = ssl.create_default_context(
                cafile=None if self.ssl_ca_pem else self.ssl_ca_cert, cadata=self.ssl_ca_pem or None
            )
        except (OSError, ValueError) as error:
            where = f"certificate-authority{'-data' if self.ssl_ca_pem else f' {self.ssl_ca_cert}'}"
            why = _pem_message(error, "it is not a PEM certificate")
            raise NoCluster(UNUSABLE, sanitize(f"{where}: {why}"), _PEM_HINT) from error
        # Python 3.13 sets it: it rejects authorities without key identifiers, as those of EKS and older GKE.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        try:
            if pem.certificate:
                with tempfile.TemporaryDirectory() as folder:  # Python reads certificates from files only
                    both = Path(folder, "client.pem")
                    both.touch(0o600)
                    both.write_text(f"{pem.certificate.strip()}\n{pem.key.strip()}\n")
                    _load_certificate(context, str(both), None)
            elif self.cert_file:
                _load_certificate(context, self.cert_file, self.key_file)
        except (OSError, ValueError) as error:
            named = [path for path in (self.cert_file, self.key_file) if path and not pem.certificate]
            where = f"client certificate {', '.join(named)}".rstrip()
            why = _pem_message(error, "it is not a PEM certificate, or does not match its key")
            raise NoCluster(UNUSABLE, sanitize(f"{where}: {why}"), _PEM_HINT) from error
        if not self.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def load(
    kubeconfig: str = "",
    context: str = "",
    namespace: str = "",
    overrides: ConfigOverrides | None = None,
    *,
    dialog: LoginDialog | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """Read `kubeconfig`, else kubectl's default, else a pod's service account; fetch credentials.

    `overrides` replace parts of a kubeconfig, or of a service account the user to act as; with a server
    among them no kubeconfig is needed. Exec plugins reach the user by `dialog`, now and at renewals.

    Raises:
        NoCluster: None was found, or it cannot be used; the hint suggests the sandbox.
    """
    overrides = overrides or ConfigOverrides()
    merged = read_kubeconfig(kubeconfig)
    if not merged.files and not overrides.server:
        config = _in_cluster(namespace, service_account)
        config.impersonation = _impersonation(overrides.user({}))
        return config
    resolved = _resolve(merged, context, overrides)
    where = replace(resolved.context, server=overrides.server or resolved.context.server)
    resolved = replace(resolved, context=where, user=overrides.user(resolved.user))
    files = ", ".join(str(path) for path in merged.files) or "--server"
    try:
        config = await _from_context(resolved, dialog or LoginDialog())
    except ExecPluginFailed as error:
        raise NoCluster("Could not log in to the cluster.", str(error), error.hint) from None
    except (OSError, ValueError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        why = f"{files}: {named}{without_secrets(file_problem(error))}"
        raise NoCluster(UNUSABLE, sanitize(why), SANDBOX_HINT) from None
    config.namespace = namespace or config.namespace
    return config


def find_context(
    kubeconfig: str = "", context: str = "", overrides: ConfigOverrides | None = None
) -> Context:
    """Return the context that `load` connects to, without its credentials.

    Raises:
        NoCluster: None was found, or it is incomplete.
    """
    overrides, merged = overrides or ConfigOverrides(), read_kubeconfig(kubeconfig)
    if merged.files or overrides.server:
        return _resolve(merged, context, overrides).context
    config = _in_cluster("", SERVICE_ACCOUNT)
    return Context(config.context, namespace=config.namespace)


def _resolve(merged: Kubeconfig, context: str, overrides: ConfigOverrides) -> ResolvedContext:
    if merged.files or context:
        return merged.resolve(context)
    return ResolvedContext(Context(name=sanitize(overrides.server)), {}, {})


async def _from_context(resolved: ResolvedContext, dialog: LoginDialog) -> ClusterConfig:
    where, user, cluster = resolved.context, resolved.user, resolved.cluster
    _check_server(where.server)
    config = ClusterConfig(
        host=where.server.rstrip("/"),
        context=where.name,
        user=where.user,
        namespace=where.namespace,
        token_file=str(user.get("tokenFile", "")),
        verify_ssl=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.get("tls-server-name"),
        impersonation=_impersonation(user),
    )
    if urlsplit(config.host).scheme == "https":
        _read_certificates(config, cluster, user)
    config.proxy = proxy_for(cluster.get("proxy-url"), config.host)
    if token := user.get("token"):
        config.api_key["BearerToken"] = _bearer(str(token))
    elif isinstance(plugin := user.get("exec"), Mapping):
        config.exec_plugin = ExecPlugin.from_user(plugin, cluster, dialog)
    elif "auth-provider" in user:
        config.auth_provider = _auth_provider_of(resolved)
    elif "username" in user:
        both = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode())
        config.api_key["BearerToken"] = f"Basic {both.decode()}"
    await config._fetch_credentials()
    return config


def _check_server(server: str) -> None:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the server must be an address that begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError(
            "the server holds a user name or password: move it to username and password of the user"
        )
    _ = parts.port


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    # Source: client-go, transport/round_trippers.go (`impersonatingRoundTripper`, `headerKeyEscape`).
    if "as" not in user:
        return ()
    headers = [("Impersonate-User", user["as"])]
    headers += [("Impersonate-Uid", uid) for uid in (user.get("as-uid"),) if uid]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups", ())]
    for key, values in user.get("as-user-extra", {}).items():
        if not isinstance(values, list):
            raise ValueError(f"as-user-extra: {key} must be a list")
        escaped = quote(str(key), safe="!#$&'*+-.^_`|~")
        headers += [(f"Impersonate-Extra-{escaped}", value) for value in values]
    for name, value in headers:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(f"{name}: it must be text (in quotes) without control characters")
    return tuple(headers)


def _read_certificates(config: ClusterConfig, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    config.ssl_ca_cert = _checked_path(cluster.get("certificate-authority"))
    config.ssl_ca_pem = _inline_pem(cluster, "certificate-authority")
    config.cert_file = _checked_path(user.get("client-certificate"))
    config.key_file = _checked_path(user.get("client-key"))
    certificate, key = _inline_pem(user, "client-certificate"), _inline_pem(user, "client-key")
    if certificate or key:
        config.inline = Credentials(
            certificate=certificate or _read_pem(config.cert_file), key=key or _read_pem(config.key_file)
        )
    config._record_certificate()


def _pem_message(error: Exception, unreadable: str) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return f"{error.strerror}."
    return f"{unreadable}."


def _checked_path(path: str | None) -> str | None:
    if path:
        read_named_file(path)  # fails for a FIFO, on which OpenSSL would block later
    return path


def _inline_pem(entry: Mapping[str, Any], name: str) -> str:
    # A PEM file may have comments in any language around the certificate.
    try:
        pem = base64.b64decode("".join(str(entry.get(f"{name}-data", "")).split()), validate=True)
    except ValueError:
        raise ValueError(f"{name}-data is not base64") from None
    return pem.decode("ascii", "ignore")


def _read_pem(path: str | None) -> str:
    return read_named_file(path).decode("ascii", "ignore") if path else ""


def _auth_provider_of(resolved: ResolvedContext) -> Any:
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
    except Exception as error:  # the package raises anything for a malformed provider
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


def _bearer(token: str) -> str:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("the token is empty or contains invalid characters")
    return f"Bearer {token}"


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    # Without a password OpenSSL would prompt on the terminal that the console draws on.
    context.load_cert_chain(certificate, key, password=lambda: "")
