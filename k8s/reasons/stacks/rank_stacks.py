"""Stacks of the ranks of a running job, asked in its pods and grouped if equal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.jobs import exec
from k8s.reasons.phrases import count, names
from k8s.reasons.stacks.collectives import CollectiveFinding, compare, describe_ranks
from k8s.reasons.stacks.frames import Frame, Place, parse_stack, place_of
from k8s.snapshot import Instance, Job
from k8s.text.errors import Forbidden, KubeError, join_sentences
from k8s.text.sanitize import sanitize

MOST_PODS, PODS_AT_ONCE, POD_S, MOST_BYTES = 64, 8, 40.0, 1 << 23
# Sent by standard input, for a command line would be too long for some proxies.
_PYTHON = (
    "for p in python3 python; do command -v $p >/dev/null 2>&1 &&"
    " exec $p -I -S -c 'import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))'"
    ' "$1"; done\n'
)
# For images without Python: the processes of this container, one record each.
_SHELL = r"""
own=$(cat /proc/self/cgroup)
for d in /proc/[0-9]*; do
  words=$(tr '\0\n' '  ' <$d/cmdline | cut -c1-200)
  [ "$(cat $d/cgroup)" = "$own" ] && [ "$words" ] || continue
  echo "Pid: ${d#/proc/}"; grep -E '^(State|PPid):' $d/status
  echo "Wchan: $(cat $d/wchan)"; echo "Command: $words"
  tr '\0' '\n' <$d/environ | grep -E '^(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK)=[0-9]+$' | sed 's/.*=/Rank: /;q'
done 2>/dev/null
"""
_STATES = {"R": "computing", "S": "sleeping", "D": "waiting for a disk or file system", "T": "stopped"}
_GROUPS_NAMED, _FRAMES_SHOWN, _WORKERS_SHOWN = 4, 30, 8
NAMES = {
    "worker server": "torch's worker server",
    "faulthandler": "faulthandler",
    "py-spy": "py-spy",
    "/proc": "/proc",
}
HOW_TO_ARM = "Submit with --debuggable to see the Python stacks next time, or add py-spy to the image."


class RankProcess(msgspec.Struct, frozen=True):
    """Answer of one rank's process; all texts are sanitized and bounded."""

    rank: int | None
    pod: str
    place: Place
    frames: tuple[Frame, ...]
    """Innermost first; empty if only the kernel answered."""
    source: str
    """A key of `NAMES`."""
    workers: tuple[str, ...]
    """Places of the busy workers of its data loader."""
    failed: str
    """Sources that exist but did not answer, with the reasons."""
    recorder: object
    """None without a flight recorder."""
    now_ns: int


class StackGroup(msgspec.Struct, frozen=True):
    """Ranks with equal stacks."""

    ranks: tuple[int, ...]
    pods: tuple[str, ...]
    place: str
    code: str
    frames: tuple[str, ...]
    source: str
    workers: tuple[str, ...] = ()
    """Places of the busy workers of their data loaders."""

    @property
    def who(self) -> str:
        """`rank 2`, `3 ranks`, or the pods of processes without a rank."""
        return describe_ranks(self.ranks) if self.ranks else names(self.pods)

    @property
    def where(self) -> str:
        """The place, and that of a data loader's worker for which the ranks wait."""
        return f"{self.place} with a worker in {self.workers[0]}" if self.workers else self.place


class StackReport(msgspec.Struct, frozen=True):
    """Activity of the ranks of a job, and what could not be found out."""

    groups: tuple[StackGroup, ...] = ()
    """The largest first."""
    collectives: tuple[CollectiveFinding, ...] = ()
    problems: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in one or two sentences; empty if nothing answered."""
        found = ", ".join(f"{each.who} in {each.where}" for each in self.groups[:_GROUPS_NAMED])
        more = len(self.groups) - _GROUPS_NAMED
        found += f", and {count(more, 'other stack')}" if more > 0 else ""
        start = f"{found[0].upper()}{found[1:]}." if found else ""
        return " ".join([start, *(each.sentence for each in self.collectives)]).strip()

    def as_text(self) -> str:
        """Return plain text for the terminal."""
        lines = [self.sentence] if self.sentence else []
        for group in self.groups:
            lines += ["", f"{group.who} in {group.place}, from {group.source}:"]
            lines += [f"    {group.code}"] if group.code else []
            lines += [f"  {frame}" for frame in group.frames[:_FRAMES_SHOWN]]
            more = len(group.frames) - _FRAMES_SHOWN
            lines += [f"  … {count(more, 'more frame')}"] if more > 0 else []
            lines += [f"  data loader worker in {place}" for place in group.workers]
        lines += ["", *self.problems] if self.problems else []
        return "\n".join(lines)

    def values(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "sentence": self.sentence,
            "groups": [msgspec.structs.asdict(each) for each in self.groups],
            "collectives": [msgspec.structs.asdict(each) for each in self.collectives],
            "problems": list(self.problems),
            "sources": list(self.sources),
        }


async def inspect_ranks(client: Client, job: Job, *, pod_s: float = POD_S) -> StackReport:
    """Ask every rank of a running job where it is; errors of single pods are in the report's `problems`."""
    running = [each for each in job.instances if each.pod and each.status == "Running"]
    if not running:
        return StackReport(problems=("No pod of the job is running.",))
    limit = asyncio.Semaphore(PODS_AT_ONCE)

    async def ask(instance: Instance) -> tuple[list[RankProcess], str]:
        async with limit:
            try:
                async with asyncio.timeout(pod_s):
                    answer = await _ask_pod(client, instance, job.ref.namespace)
                return parse_answer(answer, instance)
            except Forbidden as error:
                missing = f"You may not run commands in pods of namespace {job.ref.namespace}"
                missing += ", which needs the permission create pods/exec"
                return [], join_sentences(missing, sanitize(error.why))
            except TimeoutError:
                return [], f"{instance.name} did not answer within {pod_s:.0f} s."
            except KubeError as error:
                return [], sanitize(join_sentences(error.what, error.why))[:400]

    answers = await asyncio.gather(*map(ask, running[:MOST_PODS]))
    problems = list(dict.fromkeys(problem for _, problem in answers if problem))
    if len(problems) > 4:
        problems[3:] = [f"{count(len(problems) - 3, 'more pod')} did not answer."]
    if len(running) > MOST_PODS:
        problems.append(f"Only {MOST_PODS} of {len(running)} pods were asked.")
    return make_report([each for found, _ in answers for each in found], problems, running[:MOST_PODS])


async def _ask_pod(client: Client, instance: Instance, namespace: str) -> bytes:
    script = _probe()
    words = ("sh", "-c", _PYTHON + _SHELL, "sh", str(len(script)))
    output = bytearray()
    async with exec.start(
        client,
        instance.pod,
        namespace,
        words,
        container=next(iter(instance.containers), ""),
        doing=f"ask the ranks in {instance.pod}",
    ) as session:
        await session.write(script)
        async for channel, chunk in session.output():
            if channel == exec.STDOUT:
                output += chunk
            if len(output) > MOST_BYTES:
                break
    return bytes(output)


@cache
def _probe() -> bytes:
    return Path(__file__).with_name("probe.py").read_bytes()


def parse_answer(answer: bytes, instance: Instance) -> tuple[list[RankProcess], str]:
    """Return the processes in a pod's answer, which may be anything, and a problem or nothing."""
    text = answer.decode("utf-8", "replace")
    now_ns, found = 0, _shell_records(text)
    if text.startswith("{"):
        try:
            document = json.loads(text)
            now_ns, found = int(document["now_ns"]), list(document["processes"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return [], f"{instance.name} sent an answer that cannot be read."
    found = [each for each in found if isinstance(each, dict)]
    processes = [_process(each, instance, now_ns) for each in found]
    if not processes:
        return [], f"No process was found in {instance.name}."
    if len(processes) == 1 and processes[0].rank is None and len(instance.ranks) == 1:
        processes = [_process({**found[0], "rank": instance.ranks[0]}, instance, now_ns)]
    return processes, ""


def _shell_records(text: str) -> list[dict[str, Any]]:
    # The processes that started no other: below the shells of the image and of the question itself.
    records: list[dict[str, Any]] = []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            records.append({})
        if records:
            records[-1].setdefault(name.lower(), value.strip())
    first = [each for each in records if each.get("pid") == "1" or each.get("ppid") != "0"]
    parents = {each.get("ppid") for each in first}
    found = [
        each for each in first if each.get("pid") not in parents and "/proc/self/cgroup" not in str(each)
    ]
    for each in found:
        rank = each.get("rank", "")
        each["rank"] = int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 8 else None
    return found[:MOST_PODS]


def _process(found: Mapping[str, Any], instance: Instance, now_ns: int) -> RankProcess:
    rank, lines, failed = found.get("rank"), found.get("lines"), found.get("failed")
    failed = failed if isinstance(failed, dict) else {}
    source, command = str(found.get("source")), sanitize(str(found.get("command")))[:200]
    state, wchan = str(found.get("state")), sanitize(str(found.get("wchan") or ""))[:80]
    described = _STATES.get(state[:1], sanitize(state)[:40])
    at = wchan if wchan not in ("", "0") else "the program or the kernel"
    frames = parse_stack(str(found.get("stack") or ""))
    known = {str(key): str(value) for key, value in lines.items()} if isinstance(lines, dict) else {}
    place = place_of(frames, known) if frames else Place(f"{at} ({described})", (), command)
    stacks = found.get("workers")
    workers = [parse_stack(str(each)) for each in stacks] if isinstance(stacks, list) else []
    places = [place_of(each, known).text for each in workers if _is_busy(each)]
    is_number = isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 10**7
    return RankProcess(
        rank if is_number else None,
        instance.name,
        place,
        frames,
        source if frames and source in NAMES else "/proc",
        tuple(dict.fromkeys(places)),
        sanitize("; ".join(f"{name}: {why}" for name, why in failed.items()))[:300],
        found.get("recorder"),
        now_ns,
    )


def _is_busy(worker: Sequence[Frame]) -> bool:
    # Further out, a forked worker has the frames of the rank that forked it.
    loop = next((at for at, frame in enumerate(worker) if "/utils/data/_utils/" in frame.file), len(worker))
    return not all(frame.is_library for frame in worker[:loop])


def _lacking(process: RankProcess) -> str:
    is_python = "python" in process.place.code
    return f"nothing in the pod can tell it. {HOW_TO_ARM}" if is_python else "this program is not Python"


def make_report(
    processes: Sequence[RankProcess], problems: Iterable[str], instances: Sequence[Instance]
) -> StackReport:
    """Group the processes, compare their flight recorders and name what is missing."""
    # Where ranks are known, a process without one is a launcher.
    ranked = [each for each in processes if each.rank is not None]
    chosen = ranked or list(processes)
    by_stack: dict[object, list[RankProcess]] = {}
    for each in chosen:
        by_stack.setdefault((each.place.text, each.place.user_frames), []).append(each)
    groups = [
        StackGroup(
            tuple(sorted({each.rank for each in group if each.rank is not None})),
            tuple(dict.fromkeys(each.pod for each in group)),
            group[0].place.text,
            group[0].place.code,
            tuple(map(str, group[0].frames)),
            NAMES[group[0].source],
            tuple(dict.fromkeys(place for each in group for place in each.workers))[:_WORKERS_SHOWN],
        )
        for group in by_stack.values()
    ]
    groups.sort(key=lambda each: (-(len(each.ranks) or len(each.pods)), each.ranks))
    recorders = {
        each.rank: each.recorder for each in ranked if each.rank is not None and each.recorder is not None
    }
    now_ns = {each.rank: each.now_ns for each in ranked if each.rank is not None}
    found = [*problems]
    expected = {r for each in instances if each.ranks_proof in ("declared", "observed") for r in each.ranks}
    unknown = sorted((expected | {*now_ns}) - {*recorders})
    if ranked and (gone := tuple(sorted(expected - {*now_ns}))) and not found:
        verb = "has" if len(gone) == 1 else "have"
        found.append(f"{describe_ranks(gone).capitalize()} {verb} no process: ended, or not started.")
    blind = [each for each in chosen if not each.frames]
    for why in dict.fromkeys(each.failed or _lacking(each) for each in blind):
        same = [each for each in blind if why == (each.failed or _lacking(each))]
        who = describe_ranks(sorted(each.rank for each in same if each.rank is not None)) if ranked else ""
        stacks = f"The Python stack of {who or names(each.pod for each in same)} is not known"
        found.append(f"{stacks}: {why.rstrip('.')}.")
    sources = dict.fromkeys(NAMES[each.source] for each in chosen)
    if recorders:
        sources["torch's flight recorder"] = None
    return StackReport(tuple(groups), compare(recorders, now_ns, unknown), tuple(found), tuple(sources))
