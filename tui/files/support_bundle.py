"""Support bundle of a job: everything known about it, without secrets.

Each part is read separately; a part that cannot be read becomes a line in the README.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import platform
import tarfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.diagnosis.gather import GROUP_KEYS, KUEUE, KUEUE_VERSIONS, POD_GROUPS, answer_why
from k8s.errors import KubeError, NotFound
from k8s.kinds import kind_of
from k8s.logs import Target, targets_of
from k8s.models.resources import EVENTS, PODS, Resource
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.text.redact import Redactor
from k8s.text.sanitize import file_name, log_text
from k8s.text.yaml_writer import to_yaml
from tui.files.private_file import PrivateFile
from tui.text.format import plural


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished bundle."""

    path: Path
    size_bytes: int
    parts: tuple[str, ...]
    problems: tuple[str, ...]
    removed: Mapping[str, int] = field(hash=False)


class BundleFile:
    """Bundle under construction; one thread redacts and packs, in order."""

    def __init__(self, path: Path) -> None:
        """Start a bundle to be stored at `path`.

        Raises:
            OSError: The folder is not writable.
        """
        self.redactor = Redactor()
        """Redactor of all parts; secrets found in one part are redacted in later ones."""
        self.parts: list[tuple[str, int]] = []
        self.problems: list[str] = []
        self._root = path.name.removesuffix(".gz").removesuffix(".tar") or "bundle"
        self._private = PrivateFile(path)
        self._gzip = gzip.GzipFile(filename="", fileobj=self._private.file, mode="wb", compresslevel=6)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)
        self._thread = ThreadPoolExecutor(1, "bundle")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the thread, and remove an unfinished file."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._private:
            for file in (self._tar, self._gzip):
                file.close()

    async def add(self, name: str, make: Callable[[], str]) -> None:
        """Add a part; `make` is called in the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._add, name, make)

    def _add(self, name: str, make: Callable[[], str]) -> None:
        body = make().encode(errors="replace")
        entry = tarfile.TarInfo(f"{self._root}/{name}")
        entry.size, entry.mode, entry.mtime = len(body), 0o600, int(time.time())
        self._tar.addfile(entry, io.BytesIO(body))
        self.parts.append((name, len(body)))

    def finish(self) -> Bundle:
        """Complete the file and move it to its path."""
        self._thread.shutdown(wait=True)
        for file in (self._tar, self._gzip):
            file.close()
        size_bytes = self._private.file.tell()
        path = self._private.replace(fsync=True)
        names = tuple(name for name, _ in self.parts)
        return Bundle(path, size_bytes, names, tuple(self.problems), dict(self.redactor.removed))


TAIL = 1000
"""Default number of log lines per rank."""
# Per container; of a longer log the end is kept.
MAX_LOG_BYTES = 16 * 2**20
# Per container, however many ranks print there.
MAX_LINES = 100_000
AT_ONCE = 6
# Pods to fetch by name if the labels of their kind do not match.
MAX_SINGLE_PODS = 64
_LONGEST_LINE = 100_000
_PACKAGES = ("gpuconsole", "textual", "kubernetes", "aiohttp", "msgspec")
# Raised for malformed objects; decoding errors are ValueErrors.
_NONSENSE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)

Progress = Callable[[int, int, str], None]
"""Called with the number of finished parts, their total, and the current part."""
Object = dict[str, Any]


def bundle_name(job: Job, now_s: float) -> str:
    """Return the file name of a job's bundle, reduced to safe characters."""
    return (
        f"gpuconsole-{file_name(job.ref.name)}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}.tar.gz"
    )


async def make_bundle(
    client: Client,
    snapshot: ClusterSnapshot,
    job: Job,
    path: Path,
    *,
    tail: int = TAIL,
    progress: Progress = lambda _done, _total, _words: None,
) -> Bundle:
    """Write a private `.tar.gz`; if cancelled, no file remains.

    Args:
        client: The cluster.
        snapshot: The cluster's snapshot, for the job's nodes.
        job: The job.
        path: The file; an existing one is replaced at the end.
        tail: Log lines per rank.
        progress: Called before each part.

    Raises:
        OSError: The file cannot be written.
    """
    with BundleFile(path) as writer:
        if token := client.config.authorization().removeprefix("Bearer "):
            writer.redactor.remember("login", token)
        await _Collector(client, snapshot, job, writer, tail, progress).collect()
        return writer.finish()


class _Collector:
    def __init__(
        self,
        client: Client,
        snapshot: ClusterSnapshot,
        job: Job,
        writer: BundleFile,
        tail: int,
        progress: Progress,
    ) -> None:
        self._client = client
        self._snapshot = snapshot
        self._job = job
        self._writer = writer
        self._tail = max(0, tail)
        self._progress = progress
        self._done = 0
        self._total = 0
        self._pods: list[Object] = []

    async def collect(self) -> None:
        # Objects first, because they reveal secrets to redact in logs.
        parts: tuple[tuple[str, Callable[[], Awaitable[str | list[Object]]]], ...] = (
            ("job.yaml", self._own),
            ("pods.yaml", self._read_pods),
            ("events.yaml", self._events),
            ("groups.yaml", self._groups),
            ("why.txt", self._why),
            ("nodes.json", self._nodes),
            ("versions.txt", self._versions),
        )
        logs = [
            (target, is_previous)
            for target in targets_of(self._job, all_containers=True)
            for is_previous in (False, *([True] if self._instance(target).restarts else []))
        ]
        self._total = len(parts) + len(logs)
        for name, read in parts:
            await self._part(name, read)
        turns = asyncio.Semaphore(AT_ONCE)
        reading = [
            asyncio.create_task(self._log(target, turns, is_previous=is_previous))
            for target, is_previous in logs
        ]
        try:
            for task in reading:
                await task
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        await self._writer.add("README.txt", self._readme)

    async def _part(self, name: str, read: Callable[[], Awaitable[str | list[Object]]]) -> None:
        self._progress(self._done, self._total, name)
        try:
            found = await read()
        except KubeError as error:
            self._record_problem(name, error.why or error.what)
        except _NONSENSE as error:
            self._record_problem(name, f"the cluster's answer is malformed: {type(error).__name__}")
        else:
            redactor = self._writer.redactor
            if isinstance(found, str):
                await self._writer.add(name, lambda: redactor.text(found))
            else:
                await self._writer.add(name, lambda: _as_yaml(redactor.object(found)))
        self._done += 1

    def _record_problem(self, name: str, why: str) -> None:
        self._writer.problems.append(f"{name}: {' '.join(why.split())}")

    async def _own(self) -> list[Object]:
        ref = self._job.ref
        return [_without_noise(await self._client.get(kind_of(ref).resource, ref.name, ref.namespace))]

    async def _read_pods(self) -> list[Object]:
        ref = self._job.ref
        wanted = {each.pod for each in self._job.instances if each.pod}
        found: dict[str, Object] = {}
        if wanted and (selector := kind_of(ref).pod_selector(ref.name)):
            for pod in await self._client.list(PODS, ref.namespace, label_selector=selector):
                found[str(pod["metadata"]["name"])] = pod
        missing = sorted(wanted.difference(found))
        for name in missing[:MAX_SINGLE_PODS]:
            try:
                found[name] = await self._client.get(PODS, name, ref.namespace)
            except NotFound:
                self._record_problem("pods.yaml", f"pod {name} is gone")
        if len(missing) > MAX_SINGLE_PODS:
            self._record_problem("pods.yaml", f"{len(missing) - MAX_SINGLE_PODS} pods were left out")
        self._pods = [_as(PODS, found[name]) for name in sorted(wanted.intersection(found))]
        return self._pods

    async def _events(self) -> list[Object]:
        names = {self._job.ref.name} | {each.pod for each in self._job.instances if each.pod}
        events = await self._client.list(EVENTS, self._job.ref.namespace)
        mine = [each for each in events if (each.get("involvedObject") or {}).get("name") in names]
        return [_as(EVENTS, each) for each in sorted(mine, key=_event_time)]

    async def _groups(self) -> list[Object]:
        # PodGroups and Workloads, of any scheduler and queue.
        metas = [pod.get("metadata") or {} for pod in self._pods]
        says = [meta.get(place) or {} for meta in metas for place in ("annotations", "labels")]
        names = {self._job.ref.name, *(said[key] for said in says for key in GROUP_KEYS if key in said)}
        workloads = [Resource(KUEUE, each, "workloads", "Workload") for each in KUEUE_VERSIONS]
        found: list[Object] = []
        for resource in (*POD_GROUPS, *workloads):
            try:
                objects = await self._client.list(resource, self._job.ref.namespace)
            except NotFound:
                continue
            except KubeError as error:
                self._record_problem(f"groups.yaml, {resource.full_name}", error.why or error.what)
                continue
            found += [_as(resource, each) for each in objects if self._is_mine(each, names)]
            if resource in workloads:
                break
        return found

    def _is_mine(self, obj: Object, names: Collection[object]) -> bool:
        meta = obj.get("metadata") or {}
        owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
        return meta.get("name") in names or (bool(self._job.uid) and self._job.uid in owners)

    async def _why(self) -> str:
        return (await answer_why(self._client, self._job, self._snapshot)).as_text() + "\n"

    async def _nodes(self) -> str:
        rows = [each for each in self._snapshot.nodes if each.name in self._job.nodes]
        return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"

    async def _versions(self) -> str:
        config = self._client.config
        lines = [f"context: {config.context}", f"namespace: {self._job.ref.namespace}"]
        lines += [
            f"python: {platform.python_version()}",
            f"machine: {platform.system()} {platform.machine()}",
        ]
        lines += [f"{name}: {_version(name)}" for name in _PACKAGES]
        try:
            server = await fetch_version(self._client)
        except KubeError as error:
            self._record_problem("versions.txt, the server's", error.why or error.what)
        else:
            lines.append(f"server: {server.get('gitVersion')}")
        return "\n".join(lines) + "\n"

    def _instance(self, target: Target) -> Instance:
        return next(each for each in self._job.instances if each.pod == target.pod)

    async def _log(self, target: Target, turns: asyncio.Semaphore, *, is_previous: bool) -> None:
        instance = self._instance(target)
        is_first = instance.containers[:1] == (target.container,)
        name = target.name if is_first else f"{target.name}.{target.container}"
        name = f"logs/{file_name(name, 200)}{'.previous' if is_previous else ''}.log"
        ranks = self._job.ranks_total if target.prints_all_ranks else len(target.ranks)
        amount = min(self._tail * max(1, ranks if is_first else 1), MAX_LINES)
        async with turns:
            await self._part(name, lambda: self._read_log(name, target, amount, is_previous))

    async def _read_log(self, name: str, target: Target, lines: int, is_previous: bool) -> str:
        body = bytearray()
        cut_bytes = 0
        async with self._client.log(
            target.pod,
            target.namespace,
            container=target.container,
            tail=lines,
            timestamps=True,
            previous=is_previous,
            idle_s=30.0,
        ) as stream:
            async for chunk in stream.iter_any():
                body += chunk
                if len(body) > MAX_LOG_BYTES:
                    cut_bytes += len(body) - MAX_LOG_BYTES
                    del body[: len(body) - MAX_LOG_BYTES]
        if cut_bytes:
            why = f"only its last {MAX_LOG_BYTES:,} bytes are included, {cut_bytes:,} were left out"
            self._record_problem(name, why)
        found = bytes(body).split(b"\n")
        return await asyncio.to_thread(
            lambda: "\n".join(log_text(line.rstrip(b"\r"), cap=_LONGEST_LINE) for line in found)
        )

    def _readme(self) -> str:
        return "\n".join(self._readme_lines()) + "\n"

    def _readme_lines(self) -> Iterator[str]:
        ref, writer = self._job.ref, self._writer
        writer.problems[:] = map(writer.redactor.text, writer.problems)
        yield f"{ref.kind} {ref.namespace}/{ref.name}, {self._job.status}, as gpuconsole saw it"
        yield f"at {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}."
        yield from ("", "What is in it")
        yield from (f"  {name}  {size_bytes:,} bytes" for name, size_bytes in writer.parts)
        yield f"  Logs: the last {plural(self._tail, 'line')} of each rank, with the time of writing."
        yield from ("", "What could not be read")
        yield from (f"  {each}" for each in writer.problems or ["nothing"])
        yield from ("", "What was redacted: <redacted NAME> stands there instead")
        counted = sorted(writer.redactor.removed.items())
        yield from (f"  {name}  {count} x" for name, count in counted or [("nothing", 0)])
        yield "  Secrets are found by their names, their form, and by having been found before."
        yield "  Other secrets may remain: check the files before you send this on."


def _as_yaml(objects: list[Object]) -> str:
    return "---\n".join(map(to_yaml, objects)) or "# There are none.\n"


def _without_noise(obj: Object) -> Object:
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _as(resource: Resource, obj: Object) -> Object:
    # Items of a list lack apiVersion and kind.
    return {"apiVersion": resource.api_version, "kind": resource.kind, **_without_noise(obj)}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _event_time(event: Object) -> str:
    times = ((event.get("series") or {}).get("lastObservedTime"), event.get("lastTimestamp"))
    return str(next(filter(None, (*times, event.get("eventTime"))), ""))
