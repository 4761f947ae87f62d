"""Runs a kubeconfig's exec plugin and reads the ExecCredential it prints.

The kubernetes package runs them too, but gives them our terminal and all the time they want,
and of a token and a certificate it keeps only the token. Protocol: client.authentication.k8s.io.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from k8s.text.sanitize import sanitize

TIMEOUT_S = 60.0
"""How long an exec plugin may take: somebody may have to confirm it elsewhere."""
CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster's entry that is handed to exec plugins as `config`."""
_MESSAGE_CHARS = 300
_SUBCOMMAND = re.compile(r"[a-z]+(?:-[a-z]+)*")
_LONG_SECRETS = re.compile(r"[\w.+=~-]{32,}")
_CONTENTS = re.compile(r"\{.*\}", re.DOTALL)


class ExecPluginFailed(Exception):
    """The command gave no credentials; says why, without any secret."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an exec plugin printed."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    """PEM, as is the key."""
    key: str = field(default="", repr=False)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The `exec` entry of a kubeconfig's user."""

    argv: Sequence[str] = field(repr=False)
    """The command and its arguments, which may hold secrets."""
    env: Mapping[str, str] = field(repr=False)
    """Variables beside ours."""
    api_version: str
    cluster: Mapping[str, Any] | None = None
    """What it is told of the cluster; None unless it asks for `provideClusterInfo`."""
    install_hint: str = ""
    wants_terminal: bool = False

    @classmethod
    def from_user(cls, exec_config: Mapping[str, Any], cluster: Mapping[str, Any]) -> Self:
        """Read the `exec` part of a kubeconfig's user.

        Raises:
            ExecPluginFailed: It is incomplete.
        """
        for key in ("command", "apiVersion"):
            if not isinstance(exec_config.get(key), str):
                raise ExecPluginFailed(f"The exec plugin of this kubeconfig has no {key}.")
        arguments, variables = exec_config.get("args") or [], exec_config.get("env") or []
        if not isinstance(arguments, list) or not isinstance(variables, list):
            raise ExecPluginFailed("The exec plugin of this kubeconfig makes no sense.")
        named = [each for each in variables if isinstance(each, dict) and each.get("name")]
        return cls(
            argv=[exec_config["command"], *map(str, arguments)],
            env={str(each["name"]): str(each.get("value") or "") for each in named},
            api_version=exec_config["apiVersion"],
            cluster=_cluster_info(cluster) if exec_config.get("provideClusterInfo") else None,
            install_hint=str(exec_config.get("installHint") or ""),
            wants_terminal=exec_config.get("interactiveMode") == "Always",
        )

    @property
    def shown(self) -> str:
        """Return the command as it may be shown: its options, which may hold secrets, are left out."""
        shown = [self.argv[0]]
        for word in self.argv[1:3]:
            if not _SUBCOMMAND.fullmatch(word):
                break
            shown.append(word)
        rest = ["…"] if len(shown) < len(self.argv) else []
        return sanitize(" ".join([*shown, *rest]))

    async def run(self, timeout_s: float = TIMEOUT_S) -> Credentials:
        """Run it, without a terminal; cancelled, or out of time, it is killed.

        Raises:
            ExecPluginFailed: It gave no credentials.
        """
        if self.wants_terminal:
            raise ExecPluginFailed(f"{self.shown} wants a terminal of its own.")
        exec_info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if self.cluster is not None:
            exec_info["spec"] = {"interactive": False, "cluster": self.cluster}
        pipe = asyncio.subprocess.PIPE
        try:
            # In a session of its own it has no terminal to ask on, which the console draws on.
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": json.dumps(exec_info)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its words cannot be passed on"
            raise ExecPluginFailed(sanitize(f"{self.argv[0]}: {why}. {self.install_hint}".strip())) from None
        try:
            async with asyncio.timeout(timeout_s):
                output, stderr = await process.communicate()
        except TimeoutError:
            raise ExecPluginFailed(f"{self.shown} did not end in {timeout_s:.0f} s.") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            message = without_secrets(stderr.decode("utf-8", "replace"))
            raise ExecPluginFailed(message or f"{self.shown} ended with status {process.returncode}.")
        return self._read(output)

    def _read(self, output: bytes) -> Credentials:
        try:
            answer = json.loads(output)
        except (ValueError, RecursionError):
            raise ExecPluginFailed(f"What {self.shown} printed is not JSON.") from None
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
            raise ExecPluginFailed(f"What {self.shown} printed is no ExecCredential.")
        if answer.get("apiVersion") != self.api_version:
            raise ExecPluginFailed(f"{self.shown} speaks another version than {self.api_version}.")
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
        credentials = Credentials(token, certificate, key, _time(status.get("expirationTimestamp")))
        if bool(credentials.certificate) != bool(credentials.key):
            raise ExecPluginFailed(f"{self.shown} gave only one of certificate and key.")
        if not credentials.token and not credentials.certificate:
            raise ExecPluginFailed(f"{self.shown} gave neither token nor certificate.")
        return credentials


def without_secrets(message: str) -> str:
    """Return a complaint, fit for one line, without what may be a token or a part of a kubeconfig."""
    lines = [line.strip() for line in _CONTENTS.sub("{…}", message).splitlines() if line.strip()]
    return sanitize(_LONG_SECRETS.sub("…", " ".join(lines[-3:])))[:_MESSAGE_CHARS]


def _cluster_info(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an exec plugin is told of the cluster. Source: `ExecCredentialSpec.cluster`."""
    keys = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    info = {key: cluster[key] for key in keys if key in cluster}
    if "certificate-authority-data" not in info and (path := cluster.get("certificate-authority")):
        with suppress(OSError):  # the connection itself will say that it is missing
            info["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if isinstance(each, dict) and each.get("name") == CLUSTER_EXTENSION:
            info["config"] = each.get("extension")
    return info


def _time(found: object) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(str(found))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
