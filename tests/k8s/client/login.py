"""An exec plugin that tests control, and servers that require its credentials."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from k8s.client.auth.cluster_config import ClusterConfig, load
from tests.k8s.client.test_cluster_config import config, write
from tests.scripted.certificates import Certificate, issue, make_authority, server_tls
from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster, refusal

VERSION = "/version"


KNOWN = {"gitVersion": "v1"}


LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


PLUGIN = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
number = len(list(folder.glob("run-*"))) + 1
(folder / f"run-{number}").write_text(os.environ["KUBERNETES_EXEC_INFO"])
if (folder / "fail").exists():
    print("your session is over", file=sys.stderr)
    sys.exit(3)
answer = json.loads((folder / "answer").read_text())
status = answer["status"]
if "token" in status:
    status["token"] = status["token"].replace("N", str(number))
for key, ending in (("clientCertificateData", "crt"), ("clientKeyData", "key")):
    if key in status:
        status[key] = (folder / f"client-{number}.{ending}").read_text()
print(json.dumps(answer))
"""


class Plugin:
    """An exec plugin in a folder, with the number of its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers(token="token-N", expirationTimestamp="2099-01-01T00:00:00.123456789Z")

    def answers(self, **status: Any) -> None:
        version = "client.authentication.k8s.io/v1"
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        write(self.folder / "answer", json.dumps(answer))

    def fails(self) -> None:
        (self.folder / "fail").touch()

    @property
    def runs(self) -> int:
        return len(list(self.folder.glob("run-*")))

    def exec_part(self, **more: Any) -> dict[str, Any]:
        script = write(self.folder / "login.py", PLUGIN)
        version = "client.authentication.k8s.io/v1"
        words = {"command": sys.executable, "args": [script, str(self.folder)]}
        return {"apiVersion": version, **words, "env": None, **more}

    async def load(self, host: str, **cluster: Any) -> ClusterConfig:
        made = config(host, {"exec": self.exec_part()}, cluster=cluster)
        return await load(write(self.folder / "config", made))


def guarded(token: str) -> Compute:
    """Answer only requests with this token."""

    def answer(asked: Asked) -> Answer:
        is_known = asked.headers.get("Authorization") == f"Bearer {token}"
        return Answer(KNOWN) if is_known else refusal(401, "Unauthorized")

    return Compute(answer)


class Badge:
    """Answers only clients with a certificate of this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[str] = []

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self.seen.append(",".join(names))
        reply = Answer(KNOWN) if names == [self.name] else refusal(401, "Unauthorized")
        return await reply.answer(request, closing)


@asynccontextmanager
async def server_that_checks(folder: Path) -> AsyncIterator[tuple[ScriptedCluster, Certificate]]:
    """Serve over TLS, taking certificates of an authority, which is also the server's."""
    authority = make_authority(folder)
    tls = server_tls(issue(authority, "server"), clients_of=authority)
    async with ScriptedCluster(tls) as cluster:
        yield cluster, authority
