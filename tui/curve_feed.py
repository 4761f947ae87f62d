"""Follows the scalars of one job, wherever its event files can be read.

First choice is a folder of this machine behind the job's volume claim, which also works
when the pods are gone; else `exec` into the chief's container while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from k8s import files
from k8s.client import Client
from k8s.errors import KubeError
from k8s.kinds import DeclaredJob, JobRef, kind_of
from k8s.snapshot import Job
from k8s.submit import resource_of
from trainer.tfevents import EventFiles, EventFolder

LOCAL_S, REMOTE_S = 1.0, 5.0
"""Between looks at a folder of this machine, and at one in a pod."""


class CurveFeed:
    """The event files of one job, read as they grow."""

    def __init__(self, client: Client, ref: JobRef, job: Callable[[], Job | None]) -> None:
        """Prepare to follow the job `ref`; `job` returns it as it is now, if it is there."""
        self.events: EventFiles = EventFiles()
        """What was read so far."""
        self.source = ""
        """Where it was read, in words."""
        self.problem = ""
        """Why nothing is read, in words; empty while all is well."""
        self._client = client
        self._ref = ref
        self._job = job

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Follow until cancelled; `on_change` is awaited when points, source or problem changed."""
        declared: DeclaredJob | None = None
        while True:
            before = (self.source, self.problem)
            has_news = False
            pause_s = REMOTE_S
            try:
                declared = declared or await self._declared()
                if not declared.log_dir:
                    self.problem = _NO_FOLDER
                else:
                    has_news, pause_s = await self._read(declared)
                    self.problem = "; ".join(self.events.problems.values())
            except KubeError as error:
                self.problem = error.why or error.what
            if has_news or before != (self.source, self.problem):
                await on_change()
            await asyncio.sleep(pause_s)

    async def read_once(self) -> None:
        """Read everything that is there now.

        Raises:
            KubeError: The job or its files cannot be read.
        """
        declared = await self._declared()
        if declared.log_dir:
            await self._read(declared)
        else:
            self.problem = _NO_FOLDER

    async def _declared(self) -> DeclaredJob:
        obj = await self._client.get(resource_of(self._ref), self._ref.name, self._ref.namespace)
        return kind_of(self._ref).parse(obj)

    async def _read(self, declared: DeclaredJob) -> tuple[bool, float]:
        """Read what is new; return whether there was any, and how long to wait before the next look."""
        if isinstance(self.events, EventFolder):
            return bool(await asyncio.to_thread(self.events.read_new)), LOCAL_S
        template = next((each.template for each in declared.replicas if each.is_chief), {})
        folder = await files.local_folder(self._client, template, self._ref.namespace, declared.log_dir)
        if folder is not None:
            self.source = f"{declared.log_dir} on this machine"
            self.events = EventFolder(folder)
            return bool(await asyncio.to_thread(self.events.read_new)), LOCAL_S
        return await self._read_from_pod(declared.log_dir), REMOTE_S

    async def _read_from_pod(self, folder: str) -> bool:
        job = self._job()
        chief = next((each for each in job.instances if each.is_chief and each.pod), None) if job else None
        if chief is None:
            raise KubeError("No curves.", "The pod that writes them is not there.")
        self.source = f"{folder} in {chief.pod}"
        namespace, container = self._ref.namespace, chief.containers[0]
        has_news = False
        for file in await files.list_event_files(
            self._client, chief.pod, namespace, folder, container=container
        ):
            name = file.path.removeprefix(folder).lstrip("/")
            offset = self.events.offset(name)
            if file.size_bytes > offset:
                chunk = await files.read_from(
                    self._client, chief.pod, namespace, file.path, offset, container=container
                )
                has_news |= bool(self.events.feed(name, chunk))
        return has_news


_NO_FOLDER = (
    "This job does not say where its event files are.\n"
    "Jobs made here with a packaged trainer do, in the annotation gpuconsole.dev/log-dir."
)
