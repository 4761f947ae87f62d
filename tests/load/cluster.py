"""A large cluster in memory: its objects, storms that change them, and the truth to compare a picture with.

The same seed and the same number of updates give the same cluster.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS, NODES, PODS, Resource
from tests.load.objects import JobState, PodState, healthy_gpus, job_json, node_json, pod_json

MPI_JOBS = Resource("kubeflow.org", "v1", "mpijobs", "MPIJob")
JOB_KINDS = (PYTORCH_JOBS, MPI_JOBS, JOBS)
# Served, with nothing in them
EMPTY = tuple(
    Resource("", "v1", f"{kind.lower()}s", kind)
    for kind in ("Event", "ResourceQuota", "LimitRange", "PersistentVolumeClaim")
)
_SIZES = (1, 1, 2, 4, 8, 8, 12, 16, 16, 32)  # pods of each ten jobs: a hundred
_KINDS = (PYTORCH_JOBS, PYTORCH_JOBS, PYTORCH_JOBS, JOBS, PYTORCH_JOBS, MPI_JOBS, JOBS, *(PYTORCH_JOBS,) * 3)
_TEAMS = ("vision", "speech", "language", "robotics", "biology", "default")
SMALL = "small"  # namespace of the first twenty jobs, with 200 pods, if there are thousands
_MODELS = ("bert-large", "resnet50", "llama-finetune", "whisper", "vit-huge", "diffusion-xl", "wav2vec")
# Fates of jobs, and their shares in a hundred
_LIVES = {"running": 60, "finished": 20, "pending": 10, "halfway": 5, "crashing": 5}
# Changes of a running pod in a storm, and their shares in a hundred
_CHANGES = {"touch": 80, "crash": 10, "finish": 3, "recreate": 7}


class Forgotten(Exception):
    """A version is asked for that is older than what is remembered."""


class Event(NamedTuple):
    version: int
    line: bytes


class Collection:
    def __init__(self, resource: Resource, remembered: int) -> None:
        self.resource = resource
        self.objects: dict[str, bytes] = {}  # each object as JSON, by uid
        self._remembered = remembered
        self._events: list[Event] = []
        self._dropped = 0
        self._forgotten = 0  # the newest version that is no longer remembered

    def put(self, uid: str, version: int, body: bytes) -> None:
        kind = b"MODIFIED" if uid in self.objects else b"ADDED"
        self.objects[uid] = body
        self._remember(kind, version, body)

    def remove(self, uid: str, version: int, body: bytes) -> None:
        """Remove an object; `body` is how it looked at the end."""
        del self.objects[uid]
        self._remember(b"DELETED", version, body)

    def position(self, version: int) -> int:
        """Return the place in the sequence of all changes that follows a version.

        Raises:
            Forgotten: Some of what followed is no longer known.
        """
        if version < self._forgotten:
            raise Forgotten
        return self._dropped + bisect_right(self._events, version, key=lambda event: event.version)

    def since(self, position: int) -> list[Event]:
        """Return the changes from a place on, or raise `Forgotten`."""
        if position < self._dropped:
            raise Forgotten
        return self._events[position - self._dropped :]

    def forget(self, version: int) -> None:
        """Forget all changes so far: who asks for a version before this one must list again."""
        self._forgotten = version
        self._dropped += len(self._events)
        self._events = []

    def _remember(self, kind: bytes, version: int, body: bytes) -> None:
        self._events.append(Event(version, b'{"type":"%s","object":%s}\n' % (kind, body)))
        if len(self._events) > 2 * self._remembered:
            gone = len(self._events) - self._remembered
            self._forgotten = self._events[gone - 1].version
            self._dropped += gone
            del self._events[:gone]


class LoadCluster:
    """Nodes with eight GPUs each, jobs, and ten times as many pods."""

    def __init__(
        self, nodes: int = 1000, jobs: int = 1000, *, seed: int = 1, remembered: int = 20_000
    ) -> None:
        self.version = 1
        self.events = 0  # updates of pods so far
        self._random = random.Random(seed)
        # Served collections
        self.collections = {
            resource: Collection(resource, remembered) for resource in (NODES, PODS, *JOB_KINDS, *EMPTY)
        }
        self._gpus = {f"gpu-{number:04}": healthy_gpus(number) for number in range(nodes)}
        self._nodes = list(self._gpus)
        self._free = dict(self._gpus)
        self.jobs = [self._make_job(number, number < 20 and jobs > 1000) for number in range(jobs)]
        for number, name in enumerate(self._nodes):
            self.collections[NODES].put(name, 1, node_json(name, number))
        for job in self.jobs:
            resource = next(each for each in JOB_KINDS if each.kind == job.kind)
            self.collections[resource].put(job.uid, 1, job_json(job))
            for pod in job.pods:
                self.collections[PODS].put(pod.uid, 1, pod_json(pod))
        for collection in self.collections.values():
            collection.forget(1)
        self._changing = [pod for job in self.jobs if not job.outcome for pod in job.pods]

    @property
    def pods(self) -> Iterator[PodState]:
        return (pod for job in self.jobs for pod in job.pods)

    def change(self) -> int:
        """Let something happen to a pod; return how many events it made."""
        number = self._random.randrange(len(self._changing))
        pod = self._changing[number]
        before = self.events
        if pod.phase in ("Succeeded", "Failed"):
            self._changing[number] = self._recreate(pod)
        elif not pod.node:
            self._bind(pod) if self._random.random() < 0.5 else self._touch(pod)
        else:
            what = self._random.choices(list(_CHANGES), list(_CHANGES.values()))[0]
            if what == "recreate":
                self._changing[number] = self._recreate(pod)
            else:
                getattr(self, f"_{what}")(pod)
        return self.events - before

    def truth(self) -> dict[str, Any]:
        """Return the content that a picture of this cluster must have, as JSON."""
        held: dict[str, dict[str, int]] = {name: {} for name in self._nodes}
        for pod in self.pods:
            if pod.holds:
                held[pod.node][pod.name] = pod.holds
        return {
            "version": self.version,
            "events": self.events,
            "pods": {pod.uid: pod.version for pod in self.pods},
            "nodes": {name: {"total": self._gpus[name], "holders": held[name]} for name in self._nodes},
            "jobs": {
                job.uid: {
                    "kind": job.kind,
                    "name": job.name,
                    "gpus_requested": sum(pod.gpus for pod in job.pods),
                    "gpus_allocated": sum(pod.holds for pod in job.pods),
                    "pods": {pod.name: [pod.uid, pod.node, pod.restarts] for pod in job.pods},
                }
                for job in self.jobs
            },
        }

    def _make_job(self, number: int, is_in_small: bool) -> JobState:
        size, resource = _SIZES[number % 10], _KINDS[number % 10]
        gpus = 1 if size >= 8 else self._random.choice((1, 2, 4, 8))
        name = f"{self._random.choice(_MODELS)}-{number:04}"
        job = JobState(
            resource.kind, resource.api_version, self._random.choice(_TEAMS), name, self._uid(), gpus
        )
        job.namespace = SMALL if is_in_small else job.namespace
        leader = {"PyTorchJob": "master", "MPIJob": "launcher", "Job": "pod"}[job.kind]
        follower = {"Job": "pod"}.get(job.kind, "worker")
        for index in range(size):
            role = follower if index else leader
            place = index - 1 if role == "worker" else index
            pod = PodState(job, "", "", role, place, 0 if role == "launcher" else gpus)
            self._name(pod)
            job.pods.append(pod)
        life = self._random.choices(list(_LIVES), list(_LIVES.values()))[0]
        for index, pod in enumerate(job.pods):
            if life == "pending" or (life == "halfway" and index % 2) or not self._place(pod):
                continue
            if life == "finished":
                self._end(pod, "Succeeded")
            elif life == "crashing" and index % 3 == 0:
                pod.restarts, pod.is_crashing, pod.is_ready = 3 + index, True, False
        if life == "finished":
            if is_failed := bool(job.pods[0].node) and self._random.random() < 0.25:
                self._end(job.pods[0], "Failed")
            job.outcome = "Failed" if is_failed else "Succeeded"
        return job

    def _uid(self) -> str:
        text = f"{self._random.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _name(self, pod: PodState) -> None:
        """Give a pod its identity: as its controller would, the same name again or a new one."""
        pod.uid = self._uid()
        ending = f"{pod.index}-{pod.uid[:5]}" if pod.job.kind == "Job" else f"{pod.role}-{pod.index}"
        pod.name = f"{pod.job.name}-{ending}"

    def _place(self, pod: PodState) -> bool:
        """Bind a pod to a node on which there is room, if one is found, and start it."""
        start = self._random.randrange(len(self._nodes))
        for offset in range(50):
            name = self._nodes[(start + offset) % len(self._nodes)]
            if self._free[name] >= pod.gpus:
                self._free[name] -= pod.gpus
                pod.node, pod.phase, pod.is_ready, pod.spec = name, "Running", True, b""
                return True
        return False

    def _end(self, pod: PodState, phase: str) -> None:
        if pod.holds:
            self._free[pod.node] += pod.holds
        pod.phase, pod.is_ready, pod.is_crashing = phase, False, False

    def _say(self, pod: PodState) -> None:
        self.version += 1
        self.events += 1
        pod.version = self.version
        self.collections[PODS].put(pod.uid, self.version, pod_json(pod))

    def _touch(self, pod: PodState) -> None:
        if pod.node and not pod.is_crashing:
            pod.is_ready = not pod.is_ready
        self._say(pod)

    def _bind(self, pod: PodState) -> None:
        self._place(pod)
        self._say(pod)

    def _crash(self, pod: PodState) -> None:
        pod.restarts += not pod.is_crashing
        pod.is_crashing = not pod.is_crashing
        pod.is_ready = not pod.is_crashing
        self._say(pod)

    def _finish(self, pod: PodState) -> None:
        self._end(pod, "Failed" if self._random.random() < 0.2 else "Succeeded")
        self._say(pod)

    def _recreate(self, pod: PodState) -> PodState:
        """Delete a pod, and let its controller make another one in its place, which waits for a node."""
        pod.is_deleted = True
        self._say(pod)
        if pod.holds:
            self._free[pod.node] += pod.holds
        self.version += 1
        self.events += 1
        pod.version = self.version
        self.collections[PODS].remove(pod.uid, self.version, pod_json(pod))
        made = PodState(pod.job, "", "", pod.role, pod.index, pod.gpus)
        self._name(made)
        pod.job.pods[pod.job.pods.index(pod)] = made
        self._say(made)
        return made
