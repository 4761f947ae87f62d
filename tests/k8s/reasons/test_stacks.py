"""Stacks of a running job: what the parsers make of answers, and who is named."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from k8s.reasons.stacks import rank_stacks
from k8s.reasons.stacks.collectives import compare
from k8s.reasons.stacks.frames import parse_stack, place_of
from k8s.reasons.stacks.probe import choose_ranks
from k8s.reasons.stacks.rank_stacks import MOST_BYTES, inspect_ranks, make_report, parse_answer
from k8s.snapshot import Instance
from k8s.status import Status
from tests.scripted.server import WAIT_S, ScriptedCluster, Socket
from tests.support.objects import elastic_job, joined

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
ALL_REDUCE = f"""Current thread 0x00007f4dd51256c0 (most recent call first):
  <no Python frame>

Thread 0x00007f4df9246b80 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "{TORCH}/distributed/c10d_logger.py", line 83 in wrapper
  File "/code/train.py", line 88 in step
  File "/code/train.py", line 99 in <module>
"""
LOADER = f"""Thread 0x00007f11 [pin memory] (most recent call first):
  File "/opt/venv/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f4df9246b80 [python] (most recent call first):
  File "/opt/venv/lib/python3.11/queue.py", line 180 in get
  File "{TORCH}/utils/data/dataloader.py", line 1275 in _get_data
  File "{TORCH}/utils/data/dataloader.py", line 701 in __next__
  File "/code/data.py", line 41 in batches
"""
WORKER = """Current thread 0x1 (most recent call first):
  File "/code/data.py", line 9 in __getitem__
  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line 52 in fetch
"""
IDLE = """Current thread 0x1 (most recent call first):
  File "/opt/venv/lib/python3.11/multiprocessing/queues.py", line 113 in get
  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 9 in _worker_loop
  File "/code/train.py", line 3 in main
"""
PY_SPY = """Process 7: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 9 (active): "worker"
    run (threading.py:982)
Thread 7 (idle): "MainThread"
    load (data.py:41)
    <module> (train.py:3)
"""
PY_SPY_JSON = json.dumps(
    [
        {"thread_name": "worker", "frames": [{"name": "run", "filename": "t.py", "line": 1}]},
        {"thread_name": "MainThread", "frames": [{"name": "load", "filename": "/code/data.py", "line": 41}]},
    ]
)
UNNAMED_JSON = PY_SPY_JSON.replace('"worker"', 'null, "pid": 7, "os_thread_id": 9').replace(
    '"MainThread"', 'null, "pid": 7, "os_thread_id": 7'
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (ALL_REDUCE, "all_reduce (train.py:88)"),
        (LOADER, "DataLoader.__next__ (data.py:41)"),
        (PY_SPY, "load (data.py:41)"),
        (PY_SPY_JSON, "load (data.py:41)"),
        (UNNAMED_JSON, "load (data.py:41)"),
        ('Thread 0x1 (most recent call first):\n  File "t.py", line 8 in <module>', "t.py:8"),
        (f'Thread 0x1 (most recent call first):\n  File "{TORCH}/a.py", line 8 in f', "f (a.py:8)"),
        (
            'Thread 0x1 (most recent call first):\n  File "a\x1b[31m.py", line 8 in \u202ef',
            "<U+202E>f (a.py:8)",
        ),
    ],
)
def test_a_stack_is_shown_as_the_call_and_line_of_user_code(text: str, place: str) -> None:
    assert place_of(parse_stack(text), {}).text == place


def test_the_main_thread_is_found_though_only_a_hundred_are_listed() -> None:
    main = 'Current thread 0x1 (most recent call first):\n  File "train.py", line 8 in main\n\n'
    other = 'Thread 0x2 (most recent call first):\n  File "pool.py", line 1 in run\n\n'
    assert parse_stack(main + other * 99 + "...\n")[0].function == "main"


Entry = dict[str, Any]


def entry(number: int, name: str = "all_reduce", *, done: bool = False, sizes: object = ((4,),)) -> Entry:
    return {
        "collective_seq_id": number,
        "profiling_name": f"nccl:{name}",
        "state": "completed" if done else "started",
        "retired": done,
        "input_sizes": sizes,
        "input_dtypes": ["Float"],
        "time_created_ns": number * 10**9,
    }


def past(count: int) -> list[Entry]:
    return [entry(number, done=True) for number in range(1, count + 1)]


GROUP = "0 default_pg"


@pytest.mark.parametrize(
    ("recorders", "sentences"),
    [
        (
            {0: [*past(7), entry(8)], 1: [*past(7), entry(8)], 2: past(7), 3: [*past(7), entry(8)]},
            ["Rank 2 never entered all_reduce #8: 3 ranks wait in it for 92 s."],
        ),
        (
            {0: [entry(1, "barrier")], 1: []},
            ["Rank 1 never entered barrier #1: rank 0 waits in it for 99 s."],
        ),
        ({0: past(7), 1: past(6)}, []),
        ({0: [entry(99)], 1: [entry(98, done=True)]}, []),
        (
            {0: [*past(3), entry(4)], 1: [*past(3), entry(4)]},
            ["All 2 ranks entered all_reduce #4, and none finished it: the network or a GPU may be stuck."],
        ),
        (
            {0: [*past(3), entry(4)], 1: [*past(3), entry(4, "broadcast")], 2: [*past(3), entry(4)]},
            ["The ranks entered different collectives as #4: ranks 0 and 2 all_reduce, rank 1 broadcast."],
        ),
        (
            {0: [entry(1, sizes=[[4]])], 1: [entry(1, sizes=[[5]])]},
            [
                "The ranks entered collectives of different sizes as #1: rank 0 all_reduce of [[4]] ['Float'],"  # noqa: E501
                " rank 1 all_reduce of [[5]] ['Float']."
            ],
        ),
        ({0: [entry(1)]}, []),
        ({0: "garbage", 1: [{"collective_seq_id": "x"}], 2: [None]}, []),
    ],
)
def test_flight_recorders_name_the_ranks_missing_from_a_collective(
    recorders: dict[int, Any], sentences: list[str]
) -> None:
    found = compare(
        {rank: {GROUP: entries} for rank, entries in recorders.items()}, dict.fromkeys(recorders, 100 * 10**9)
    )
    assert [each.sentence for each in found] == sentences


def instance(name: str = "worker-0", ranks: tuple[int, ...] = ()) -> Instance:
    return Instance(
        name,
        "worker",
        0,
        False,
        ranks,
        "declared",
        Status.RUNNING,
        "",
        0,
        "n",
        0,
        None,
        f"job-{name}",
        "u",
        ("c",),
    )


def answer(*processes: object) -> bytes:
    return json.dumps({"now_ns": 100 * 10**9, "processes": processes}).encode()


def process(rank: int | None, stack: str = "", **more: object) -> dict[str, object]:
    source = {"stack": stack, "source": "worker server"} if stack else {}
    found = {"rank": rank, "state": "S (sleeping)", "wchan": "futex_do_wait", "command": "python train.py"}
    return {**found, **source, **more}


def test_equal_stacks_are_grouped_and_the_differing_rank_is_named() -> None:
    stuck = [*past(3), entry(4)]
    ranks = [process(rank, ALL_REDUCE, recorder={GROUP: stuck}) for rank in (0, 1, 3)]
    ranks.append(process(2, LOADER, recorder={GROUP: past(3)}, lines={"/code/data.py:41": "next(loader)"}))
    ranks[-1]["workers"] = [WORKER, IDLE, ""]
    found, problem = parse_answer(answer(*ranks), instance())
    report = make_report(found, [], [instance(ranks=(0, 1, 2, 3))])
    assert (problem, report.problems) == ("", ())
    assert report.sentence == (
        "3 ranks in all_reduce (train.py:88), rank 2 in DataLoader.__next__ (data.py:41) with a worker in"
        " __getitem__ (data.py:9). Rank 2 never entered all_reduce #4: 3 ranks wait in it for 96 s."
    )
    assert "    next(loader)" in report.as_text().splitlines()
    assert report.values()["groups"][1]["ranks"] == (2,)
    assert report.sources == ("torch's worker server", "torch's flight recorder")


def test_a_missing_rank_and_an_unresponsive_rank_are_named() -> None:
    silent = process(1, failed={"worker server": "timed out"})
    found, _ = parse_answer(answer(process(0, ALL_REDUCE, recorder={}), silent), instance())
    report = make_report(found, [], [instance(ranks=(0, 1, 2))])
    assert report.problems[:2] == (
        "Rank 2 has no process: ended, or not started.",
        "The Python stack of rank 1 is not known: worker server: timed out.",
    )
    assert "rank 1 in futex_do_wait (sleeping)" in report.sentence
    waiting = process(0, ALL_REDUCE, recorder={GROUP: [*past(3), entry(4)]})
    report = make_report(parse_answer(answer(waiting, silent), instance())[0], [], [])
    assert report.sentence.endswith(
        "Rank 0 waits in all_reduce #4 for 96 s; whether rank 1 entered it is not known."
    )


SHELL = """Pid: 1
State:\tS (sleeping)
PPid:\t0
Wchan: do_wait
Command: sh -c sleep 1000
Pid: 7
State:\tS (sleeping)
PPid:\t1
Wchan: hrtimer_nanosleep
Command: sleep 1000
Pid: 12
State:\tS (sleeping)
PPid:\t0
Wchan: do_wait
Command: sh -c own=$(cat /proc/self/cgroup)
"""


def test_a_program_without_python_is_described_by_its_kernel_wait_channel() -> None:
    found, _ = parse_answer(SHELL.encode(), instance(ranks=(3,)))
    report = make_report(found, [], [instance(ranks=(3,))])
    assert report.sentence == "Rank 3 in hrtimer_nanosleep (sleeping)."
    assert report.sources == ("/proc",)
    assert report.problems[0].endswith("is not known: this program is not Python.")


@given(st.text() | st.sampled_from([ALL_REDUCE, PY_SPY, PY_SPY_JSON]).map(lambda text: text[3:-20]))
def test_any_text_is_parsed_or_ignored(text: str) -> None:
    assert all(frame.function is not None for frame in parse_stack(text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
KEYS = ("rank", "state", "wchan", "command", "stack", "source", "lines", "failed", "recorder", "workers")


@example([None, {}], 0)
@example([], math.inf)
@example(
    [
        {
            "rank": rank,
            "stack": ALL_REDUCE,
            "recorder": {"0": [{"collective_seq_id": 1, "time_created_ns": at}]},
        }
        for rank, at in enumerate((-(10**400), 10**400, 1))
    ],
    10**400,
)
@given(
    st.lists(json_values | st.fixed_dictionaries(dict.fromkeys(KEYS, json_values)), max_size=4), json_values
)
@pytest.mark.slow
def test_any_answer_of_a_pod_becomes_a_report(processes: list[Any], now: Any) -> None:
    body = json.dumps({"now_ns": now, "processes": processes}).encode()
    for each in (body, body[:-3]):
        found, problem = parse_answer(each, instance(ranks=(0,)))
        report = make_report(found, [problem] if problem else [], [instance(ranks=(0,))])
        assert report.as_text().isprintable() or "\n" in report.as_text()


PYTHON, EXACT, PROGRAM = (True, False), (True, True), (False, False)


@pytest.mark.parametrize(
    ("tree", "chosen"),
    [
        ({1: (0, PROGRAM), 2: (1, PYTHON), 3: (2, EXACT), 4: (2, EXACT), 5: (3, PYTHON)}, [3, 4]),
        ({1: (0, PROGRAM), 2: (1, PYTHON)}, [2]),
        ({1: (0, PROGRAM), 2: (1, PYTHON), 3: (2, PYTHON)}, [2]),
        ({1: (0, EXACT), 9: (0, PROGRAM), 10: (9, EXACT)}, [1]),
        ({7: (0, PYTHON)}, [7]),
        ({1: (0, PROGRAM), 2: (1, PROGRAM)}, [2]),
    ],
    ids=["torchrun", "no ranks named", "child", "shell of another", "no process 1", "no Python"],
)
def test_one_process_is_chosen_for_each_rank(
    tree: dict[int, tuple[int, tuple[bool, bool]]], chosen: list[int]
) -> None:
    processes = {
        pid: {"pid": pid, "parent": parent, "is_python": is_python, "is_exact": is_exact, "rank": None}
        for pid, (parent, (is_python, is_exact)) in tree.items()
    }
    assert [each["pid"] for each in choose_ranks(processes)] == chosen


PROBE = Path(rank_stacks.__file__).with_name("probe.py")
HUNG = """
import socket, sys, time
from trainer import debuggable
debuggable.arm()
if sys.argv[1] == "silent server":
    held = socket.socket(socket.AF_UNIX)
    held.bind(f"{debuggable.private_folder()}/{__import__('os').getpid()}-1.sock")
    held.listen()
print("ready", flush=True)
def stuck():
    time.sleep(1000)
stuck()
"""


@pytest.fixture
def hung(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {"GPUCONSOLE_POD_UID": "uid", "TMPDIR": str(tmp_path), "RANK": "1", "LOCAL_RANK": "1"}
    env |= {"GPUCONSOLE_DEBUGGABLE": "0"} if request.param == "not armed" else {}
    words = [sys.executable, "-c", HUNG, request.param]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("hung", "source", "failed"),
    [
        ("armed", "faulthandler", {}),
        ("silent server", "faulthandler", {"worker server": "timed out"}),
        ("not armed", "/proc", {}),
    ],
    indirect=["hung"],
)
def test_a_hung_process_answers_by_the_best_source_left(
    hung: subprocess.Popen[str], source: str, failed: dict[str, str], tmp_path: Path
) -> None:
    env = os.environ | {"GPUCONSOLE_POD_UID": "uid", "TMPDIR": str(tmp_path)}
    quick = PROBE.read_bytes().replace(b"ANSWER_S, SIGNAL_S", b"_, SIGNAL_S")
    quick = quick.replace(b"def read(", b"ANSWER_S = 0.2\n\n\ndef read(", 1)
    words = [sys.executable, "-I", "-S", "-c", "import sys; exec(sys.stdin.buffer.read())"]
    for _ in range(2):  # the second answer does not contain the first
        ran = subprocess.run(words, input=quick, env=env, capture_output=True, timeout=60, check=True)
    (found,), problem = parse_answer(ran.stdout, instance())
    assert (found.rank, found.source, problem) == (1, source, "")
    assert json.loads(ran.stdout)["processes"][0]["failed"] == failed
    if source != "/proc":
        assert found.frames[0].function == "stuck"
        assert json.loads(ran.stdout)["processes"][0]["stack"].count("Current thread") == 1
    assert hung.poll() is None, "asking must not end the process"


async def test_a_pod_that_floods_the_question_for_stacks_is_left_soon() -> None:
    made, pods = elastic_job("flooded", 2)
    job, path = joined([], pods, [made])[1]["flooded"], "/api/v1/namespaces/default/pods/{}/exec"
    frames = [(1, b"{" + b"x" * 2**20)] * (MOST_BYTES // 2**20 + 1)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for each in job.instances:
            cluster.say(path.format(each.pod), Socket(frames, is_left_open=True))
        report = await inspect_ranks(client, job, pod_s=WAIT_S)
        assert not report.groups and len(report.problems) == 2
        assert [len(cluster.asked(path.format(each.pod))) for each in job.instances] == [1, 1]
