"""The sandbox's process: API server, controllers, scheduler and node agent in one event loop.

`launcher` starts it as `python -m k8s.sandbox FOLDER OPTIONS DESCRIPTOR`. Its log file is bounded in size,
whatever programs do to the sandbox.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.client.rate_limiter import RateLimiter
from k8s.models.resources import CLAIMS, TRAINING_RUNTIMES
from k8s.sandbox.api.listening import server_context
from k8s.sandbox.api.server import Server
from k8s.sandbox.api.store import Store
from k8s.sandbox.controller_runtime import Informers, run_controller
from k8s.sandbox.controllers.operators import Operators
from k8s.sandbox.controllers.scheduler import Scheduler
from k8s.sandbox.controllers.trainer import TORCH_DISTRIBUTED
from k8s.sandbox.launcher import SandboxOptions
from k8s.sandbox.node.agent import Agent
from k8s.sandbox.node.nodes import shape_of
from k8s.sandbox.node.torch_loopback import keeps_rendezvous_private
from k8s.sandbox.node.volumes import Provisioner, ensure_workspace, make_private
from k8s.sandbox.paths import LogLimits, SandboxPaths, locked
from k8s.text.errors import Conflict, KubeError

LOG_BYTES = 1024 * 1024
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STOP_GRACE_S = 10.0
_IDLE_POLL_S = 60.0
_REQUESTS_PER_S = 1000.0
log = logging.getLogger(__name__)


def main(folder: str, options: str, descriptor: str) -> int:
    """Run a sandbox until it is stopped; return the exit status. Progress and errors go to the descriptor."""
    paths = SandboxPaths(Path(folder))
    begin_log(paths.log)

    def report(**fields: str) -> None:
        with suppress(OSError):
            os.write(int(descriptor), json.dumps(fields).encode() + b"\n")

    try:
        parsed_options = SandboxOptions(**json.loads(options))
        asyncio.run(serve(paths, parsed_options, lambda progress: report(progress=progress)))
    except KubeError as error:
        report(what=error.what, why=error.why, hint=error.hint)
        print(error, file=sys.stderr)
        return 1
    return 0


class SandboxLogHandler(RotatingFileHandler):
    """Rotating log file that stdout and stderr follow, if they are redirected to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")
        self._outputs = [each for each in (1, 2) if self._is_this_file(each)]
        self.setFormatter(logging.Formatter(_FORMAT))

    def doRollover(self) -> None:
        """Start a new file."""
        super().doRollover()
        with open(self.baseFilename, "ab") as fresh:
            for descriptor in self._outputs:
                os.dup2(fresh.fileno(), descriptor)

    def _is_this_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.baseFilename))
        except OSError:
            return False


def begin_log(path: Path) -> None:
    """Send this process's log records to a file."""
    sys.stdout.flush()
    logging.basicConfig(level=logging.INFO, handlers=[SandboxLogHandler(path)])


async def serve(paths: SandboxPaths, options: SandboxOptions, progress: Callable[[str], None]) -> None:
    """Run a sandbox until SIGTERM, SIGINT or a long idle time; the last `progress` is `ready: NOTICE`.

    Raises:
        KubeError: Another sandbox runs, or its folder cannot be used.
    """
    paths.prepare()
    with locked(paths.lock) as is_ours:
        if not is_ours:
            raise KubeError(
                "The sandbox runs already.",
                f"Process {paths.holder().pid} holds {paths.folder}.",
                "Use it, or stop it first: gpuconsole sandbox stop",
            )
        progress("Opening the database")
        store = Store(paths.database)
        try:
            own_token = secrets.token_urlsafe(32)
            server = Server(
                store,
                token=paths.token(),
                pods_root=paths.pods,
                component_token=own_token,
                allows_c10d=keeps_rendezvous_private(),
            )
            tls, certificate = server_context(paths.folder)
            port = await _listen(server, paths.holder().port, tls)
            paths.sign(port)
            paths.write_kubeconfig(port, paths.token(), certificate)
            access = ClusterConfig(
                host=f"https://127.0.0.1:{port}",
                api_key={"BearerToken": f"Bearer {own_token}"},
                ssl_ca_cert=str(paths.certificate),
            )
            try:
                async with Client(access, limiter=RateLimiter(_REQUESTS_PER_S, _REQUESTS_PER_S)) as client:
                    await _control(client, server, paths, options, progress)
            finally:
                await server.stop()
        finally:
            store.close()


async def _control(
    client: Client,
    server: Server,
    paths: SandboxPaths,
    options: SandboxOptions,
    progress: Callable[[str], None],
) -> None:
    # Controllers stop first, so that they do not replace the pods that the agent then ends.
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    progress("Setting up nodes and volumes")
    make_private(paths.volumes)
    await ensure_workspace(client, paths.volumes)
    with suppress(Conflict):
        await client.create(TRAINING_RUNTIMES[0], TORCH_DISTRIBUTED)
    informers = Informers(client)
    shape = shape_of(options.nodes, options.gpus_per_node, options.links)
    limits = LogLimits(options.log_max_bytes, options.log_max_files)
    agent = Agent(informers, paths, shape, options.restart_delay_s, limits)
    server.usage = lambda: agent.usage
    server.gpu_metrics = None if shape.is_simulated else agent.gpu_metrics
    await agent.register()
    operators = Operators(informers)
    scheduler = Scheduler(informers)
    claims = informers.of(CLAIMS)
    provisioner = Provisioner(client, claims, paths.volumes)
    await provisioner.bind_all(await client.list(CLAIMS))
    deciding = [
        run_controller(operators, informers.waker(), *operators.informers),
        run_controller(scheduler, informers.waker(), *scheduler.informers),
        run_controller(provisioner, informers.waker(), claims),
    ]
    working = [
        run_controller(agent, informers.waker(), agent.pods, agent.nodes),
        agent.watch_usage(),
        informers.run(),
    ]
    deciders = [asyncio.create_task(each) for each in deciding]
    workers = [asyncio.create_task(each) for each in working]
    watcher = asyncio.create_task(_watch_idle(agent, server, options.idle_s, stopping))
    every = [*deciders, *workers, watcher]
    gc.freeze()
    progress(f"ready: {shape.notice}")
    broken = asyncio.ensure_future(asyncio.wait(every, return_when=asyncio.FIRST_EXCEPTION))
    await asyncio.wait({broken, asyncio.create_task(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED)
    broken.cancel()
    await _cancel(*deciders, watcher)
    await agent.stop(_STOP_GRACE_S)
    await _cancel(*workers)
    for task in every:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _watch_idle(agent: Agent, server: Server, idle_s: float, stopping: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(min(_IDLE_POLL_S, idle_s / 4))
        if not agent.is_working and server.idle_s >= idle_s:
            log.info("stopping: idle for %.0f s", server.idle_s)
            stopping.set()


async def _listen(server: Server, preferred_port: int, tls: ssl.SSLContext) -> int:
    # The port of last time if it is free: other programs may have copies of the kubeconfig.
    with suppress(OSError):
        return await server.start(port=preferred_port, tls=tls)
    try:
        return await server.start(tls=tls)
    except OSError as error:
        raise KubeError("The sandbox cannot listen.", f"127.0.0.1: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
