"""Runs a kubeconfig's login command (an exec plug-in) and reads the credentials it prints.

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

LONGEST_S = 60.0
"""How long a login may take: somebody may have to confirm it elsewhere."""
CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster's entry that is handed to login commands as `config`."""
_WORDS_SHOWN = 300
_SUBCOMMAND = re.compile(r"[a-z]+(?:-[a-z]+)*")
_LONG_SECRETS = re.compile(r"[\w.+=~-]{32,}")
_CONTENTS = re.compile(r"\{.*\}", re.DOTALL)


class ExecPluginFailed(Exception):
    """The command gave no credentials; says why, without any secret."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a login command gave."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    """PEM, as is the key."""
    key: str = field(default="", repr=False)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The command that a kubeconfig names for a user."""

    words: Sequence[str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    """Variables beside ours."""
    api_version: str
    cluster: Mapping[str, Any] | None = None
    """What it is told about the cluster, if it wants to know."""
    install_hint: str = ""
    wants_terminal: bool = False

    @classmethod
    def from_user(cls, said: Mapping[str, Any], cluster: Mapping[str, Any]) -> Self:
        """Read the `exec` part of a kubeconfig's user.

        Raises:
            LoginFailed: It is incomplete.
        """
        for key in ("command", "apiVersion"):
            if not isinstance(said.get(key), str):
                raise ExecPluginFailed(f"The login command of this kubeconfig has no {key}.")
        arguments, variables = said.get("args") or [], said.get("env") or []
        if not isinstance(arguments, list) or not isinstance(variables, list):
            raise ExecPluginFailed("The login command of this kubeconfig makes no sense.")
        named = [each for each in variables if isinstance(each, dict) and each.get("name")]
        return cls(
            words=[said["command"], *map(str, arguments)],
            environment={str(each["name"]): str(each.get("value") or "") for each in named},
            api_version=said["apiVersion"],
            cluster=_told(cluster) if said.get("provideClusterInfo") else None,
            install_hint=str(said.get("installHint") or ""),
            wants_terminal=said.get("interactiveMode") == "Always",
        )

    @property
    def shown(self) -> str:
        """Return the command as it may be shown: its options, which may hold secrets, are left out."""
        shown = [self.words[0]]
        for word in self.words[1:3]:
            if not _SUBCOMMAND.fullmatch(word):
                break
            shown.append(word)
        rest = ["…"] if len(shown) < len(self.words) else []
        return sanitize(" ".join([*shown, *rest]))

    async def run(self, longest_s: float = LONGEST_S) -> Credentials:
        """Run it, without a terminal; cancelled, or out of time, it is killed.

        Raises:
            LoginFailed: It gave no credentials.
        """
        if self.wants_terminal:
            raise ExecPluginFailed(f"{self.shown} wants a terminal of its own.")
        asked = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if self.cluster is not None:
            asked["spec"] = {"interactive": False, "cluster": self.cluster}
        pipe = asyncio.subprocess.PIPE
        try:
            # In a session of its own it has no terminal to ask on, which the console draws on.
            process = await asyncio.create_subprocess_exec(
                *self.words,
                env={**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its words cannot be passed on"
            raise ExecPluginFailed(sanitize(f"{self.words[0]}: {why}. {self.install_hint}".strip())) from None
        try:
            async with asyncio.timeout(longest_s):
                output, complaints = await process.communicate()
        except TimeoutError:
            raise ExecPluginFailed(f"{self.shown} did not end in {longest_s:.0f} s.") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            said = without_secrets(complaints.decode("utf-8", "replace"))
            raise ExecPluginFailed(said or f"{self.shown} ended with status {process.returncode}.")
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


def without_secrets(words: str) -> str:
    """Return a complaint, fit for one line, without what may be a token or a part of a kubeconfig."""
    lines = [line.strip() for line in _CONTENTS.sub("{…}", words).splitlines() if line.strip()]
    return sanitize(_LONG_SECRETS.sub("…", " ".join(lines[-3:])))[:_WORDS_SHOWN]


def _told(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a login command is told about the cluster. Source: `ExecCredentialSpec.cluster`."""
    keys = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    told = {key: cluster[key] for key in keys if key in cluster}
    if "certificate-authority-data" not in told and (path := cluster.get("certificate-authority")):
        with suppress(OSError):  # the connection itself will say that it is missing
            told["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if isinstance(each, dict) and each.get("name") == CLUSTER_EXTENSION:
            told["config"] = each.get("extension")
    return told


def _time(found: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(found))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
