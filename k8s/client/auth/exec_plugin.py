"""Exec plugins of kubeconfigs, and the ExecCredential that they print.

The kubernetes package could run them, too, but lets them use our terminal and any amount of time,
and drops the certificate if there is a token. Protocol: client.authentication.k8s.io.

Plugins talk to the user on stderr (a device code, a prompt): `LoginDialog` shows it and lends the terminal.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

import msgspec

from k8s.text.home import read_named_file
from k8s.text.sanitize import sanitize, sanitize_lines

# Generous: the user may have to confirm the login in a browser.
TIMEOUT_S = 60.0
# For a plugin that has the user's attention: device codes are valid for so long.
DIALOG_S = 900.0
# This extension of a cluster is passed to exec plugins as `config`.
CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
_MESSAGE_CHARS = 300
_MOST_BYTES = 2**20
_SUBCOMMAND = re.compile(r"[a-z]+(?:-[a-z]+)*")
_LONG_SECRETS = re.compile(r"[\w.+=~-]{32,}")
_CONTENTS = re.compile(r"\{.*\}", re.DOTALL)


class ExecPluginFailed(Exception):
    """An exec plugin gave no credentials. The message contains no secret."""

    hint = "Run the exec plugin of your kubeconfig by hand to see what is wrong."


class LoginDialog(msgspec.Struct):
    """Means by which exec plugins reach the user."""

    show: Callable[[str], None] | None = None
    """Receives their error output as it arrives, sanitised; None leaves it to the error if they fail."""
    lend_terminal: Callable[[], AbstractContextManager[None]] | None = None
    """While it is entered, stdin and stderr are a terminal for the plugin alone; None without one."""
    is_lent_if_available: bool = False
    """Lend it also to plugins that can do without: `interactiveMode: IfAvailable`."""
    hint: str = "Run it on a terminal."
    """Advice where a plugin needs a terminal, and there is none to lend."""


class NeedsTerminal(ExecPluginFailed):
    """The plugin runs on a terminal only, and there is none to lend."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials printed by an exec plugin; certificate and key are PEM."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The `exec` entry of a kubeconfig's user."""

    argv: Sequence[str] = field(repr=False)
    """The command and its arguments; they may hold secrets."""
    env: Mapping[str, str] = field(repr=False)
    api_version: str
    cluster: Mapping[str, Any] | None = None
    """Cluster details for the plugin; None unless it asks for `provideClusterInfo`."""
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    dialog: LoginDialog = field(default_factory=LoginDialog, repr=False)

    @classmethod
    def from_user(
        cls, exec_config: Mapping[str, Any], cluster: Mapping[str, Any], dialog: LoginDialog | None = None
    ) -> Self:
        """Parse the `exec` entry of a kubeconfig's user.

        Raises:
            ExecPluginFailed: The entry is incomplete or malformed.
        """
        for key in ("command", "apiVersion"):
            if not isinstance(exec_config.get(key), str):
                raise ExecPluginFailed(f"The exec plugin of this kubeconfig has no {key}.")
        arguments, variables = exec_config.get("args") or [], exec_config.get("env") or []
        if not isinstance(arguments, list) or not isinstance(variables, list):
            raise ExecPluginFailed("The exec plugin of this kubeconfig is malformed: args and env are lists.")
        named = [each for each in variables if isinstance(each, dict) and each.get("name")]
        return cls(
            argv=[exec_config["command"], *map(str, arguments)],
            env={str(each["name"]): str(each.get("value") or "") for each in named},
            api_version=exec_config["apiVersion"],
            cluster=_cluster_info(cluster) if exec_config.get("provideClusterInfo") else None,
            install_hint=str(exec_config.get("installHint") or ""),
            interactive_mode=str(exec_config.get("interactiveMode") or "IfAvailable"),
            dialog=dialog or LoginDialog(),
        )

    @property
    def shown(self) -> str:
        """Return the command for display, without its options, which may hold secrets."""
        shown = [self.argv[0]]
        for word in self.argv[1:3]:
            if not _SUBCOMMAND.fullmatch(word):
                break
            shown.append(word)
        hidden = ["…"] if len(shown) < len(self.argv) else []
        return sanitize(" ".join([*shown, *hidden]))

    async def run(self, timeout_s: float = TIMEOUT_S) -> Credentials:
        """Run the plugin; kill it on cancellation or timeout, which is longer once it talks to the user.

        Raises:
            ExecPluginFailed: The plugin gave no credentials.
        """
        lend = self.dialog.lend_terminal
        if self.interactive_mode == "Always" and lend is None:
            message = f"{self.shown} needs a terminal (interactiveMode: Always)."
            raise NeedsTerminal(message, self.dialog.hint)
        is_lent = self.interactive_mode == "Always" or (
            self.interactive_mode == "IfAvailable" and self.dialog.is_lent_if_available
        )
        if lend is None or not is_lent:
            return await self._run(timeout_s, is_interactive=False)
        with lend():
            return await self._run(DIALOG_S, is_interactive=True)

    async def _run(self, timeout_s: float, *, is_interactive: bool) -> Credentials:
        spec = {"interactive": is_interactive} | (
            {"cluster": self.cluster} if self.cluster is not None else {}
        )
        exec_info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            # Otherwise in a new session, in which it cannot open the terminal that the console draws on.
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": json.dumps(exec_info)},
                stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if is_interactive else asyncio.subprocess.PIPE,
                start_new_session=not is_interactive,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its arguments cannot be passed on"
            raise ExecPluginFailed(sanitize(f"{self.argv[0]}: {why}. {self.install_hint}".strip())) from None
        kill = process.kill if is_interactive else partial(os.killpg, process.pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                show = partial(self._show, limit) if self.dialog.show is not None else None
                reads = [_read_all(process.stdout, kill), _read_all(process.stderr, kill, show)]
                output, stderr = await asyncio.gather(*reads)
                await process.wait()
        except TimeoutError:
            raise ExecPluginFailed(f"{self.shown} did not finish in {timeout_s:.0f} s.") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    kill()
                await process.wait()
        if max(len(output), len(stderr)) > _MOST_BYTES:
            raise ExecPluginFailed(f"{self.shown} printed more than 1 MiB, so it was stopped.")
        if process.returncode:
            message = without_secrets(stderr.decode("utf-8", "replace"))
            raise ExecPluginFailed(message or f"{self.shown} exited with status {process.returncode}.")
        return self._read(output)

    def _show(self, limit: asyncio.Timeout, text: str) -> None:
        limit.reschedule(asyncio.get_running_loop().time() + DIALOG_S)
        if self.dialog.show is not None:
            self.dialog.show(text)

    def _read(self, output: bytes) -> Credentials:
        try:
            answer = json.loads(output)
        except (ValueError, RecursionError):
            raise ExecPluginFailed(f"{self.shown} did not print JSON.") from None
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
            raise ExecPluginFailed(f"{self.shown} did not print an ExecCredential.")
        if answer.get("apiVersion") != self.api_version:
            raise ExecPluginFailed(f"{self.shown} printed another version than {self.api_version}.")
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
        credentials = Credentials(token, certificate, key, _time(status.get("expirationTimestamp")))
        if bool(credentials.certificate) != bool(credentials.key):
            raise ExecPluginFailed(f"{self.shown} gave only one of certificate and key.")
        if not credentials.token and not credentials.certificate:
            raise ExecPluginFailed(f"{self.shown} gave neither token nor certificate.")
        return credentials


async def _read_all(
    stream: asyncio.StreamReader | None, kill: Callable[[], None], show: Callable[[str], None] | None = None
) -> bytes:
    content = b""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while stream is not None and (chunk := await stream.read(65536)):
        content = (content + chunk)[: _MOST_BYTES + 1]
        if len(content) > _MOST_BYTES:  # keep reading: asyncio sees no exit while a pipe holds unread bytes
            with suppress(ProcessLookupError):
                kill()
        elif show is not None:
            show(sanitize_lines(decoder.decode(chunk).replace("\r\n", "\n").replace("\r", "\n")))
    return content


def without_secrets(message: str) -> str:
    """Return a message on one line, without anything that may be a token or part of a kubeconfig."""
    lines = [line.strip() for line in _CONTENTS.sub("{…}", message).splitlines() if line.strip()]
    return sanitize(_LONG_SECRETS.sub("…", " ".join(lines[-3:])))[:_MESSAGE_CHARS]


def _cluster_info(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    # Source: `ExecCredentialSpec.cluster`.
    keys = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    info = {key: cluster[key] for key in keys if key in cluster}
    if "certificate-authority-data" not in info and (path := cluster.get("certificate-authority")):
        with suppress(OSError):  # `ssl_context` reports a missing file
            info["certificate-authority-data"] = base64.b64encode(read_named_file(path)).decode()
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
