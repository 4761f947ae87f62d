"""Order, grouping and bounds of triage; causes of failures, from whole logs and from single last lines."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.reasons.cause import Cause
from k8s.reasons.failures import CAUSES, ContainerLog, FailureCause, Triage, triage
from k8s.reasons.failures.causes import compiled
from k8s.text.sanitize import sanitize
from tests.support.failures import container_log, read_cases

RAISED = """@{at} Traceback (most recent call last):
  File "/src/run.py", line 5, in <module>
    main()
{error}"""


def test_a_real_error_comes_before_earlier_collateral() -> None:
    """Clocks of nodes differ, and a victim may be stamped before the rank that left."""
    found = triage(
        [
            container_log(
                RAISED.format(at=9.2, error="ConnectionResetError: [Errno 104] Connection reset by peer"),
                ranks=(0,),
                exit=1,
                finished=9.4,
            ),
            container_log(
                RAISED.format(at=9.9, error="ValueError: bad shard 7"),
                instance="worker-1",
                ranks=(1,),
                exit=1,
                finished=10,
            ),
        ]
    )
    assert found is not None
    assert found.reason == "rank 1 exit 1: ValueError: bad shard 7"
    assert found.others == ("rank 0: connection lost after rank 1 left",)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("ValueError: bad shard 7\nrank 2 starts", "ValueError: bad shard 7"),
        ("ValueError: bad shard 7\n\nsaved /ckpt/7\n  3 files", "ValueError: bad shard 7"),
        ("KeyError: 'tokens'\nloading shard (7 of 9)", "KeyError: 'tokens'"),
        ("AssertionError\nworker is done", "AssertionError"),
        ("OSError: [Errno 5] Input/output error\nrank 2 starts", "OSError: [Errno 5] Input/output error"),
        ("ValueError: shards do not fit:\n7 and 9", "ValueError: shards do not fit: 7 and 9"),
        ("ValueError: \nshard 7 is bad\nsee 9", "ValueError: shard 7 is bad"),
        ("ValueError: got [7,\n9]", "ValueError: got [7, 9]"),
        ('ValueError: got "7\n9"', 'ValueError: got "7 9"'),
        ("ValueError: bad shard\n  shard 7\nrank 2 starts", "ValueError: bad shard shard 7"),
    ],
)
@pytest.mark.parametrize("label", ["", "[rank2]: "])
def test_the_reason_ends_with_the_exception(message: str, reason: str, label: str) -> None:
    text = RAISED.format(at=9, error=message).replace("@9 ", "").replace("\n", f"\n{label}")
    found = triage([container_log(f"@9 {label}{text}", ranks=(2,), exit=1, finished=10)])
    assert found is not None
    assert found.reason == f"rank 2 exit 1: {reason}"


@pytest.mark.parametrize(
    ("cause", "ended"),
    [
        ("preempted", {"exit": 137, "pod_reason": "PreemptionByKubeScheduler"}),
        ("preempted", {"exit": 137, "message": "Preempted to accommodate a workload (UID: 7)"}),
        ("evicted", {"exit": 143, "pod_reason": "EvictionByEvictionAPI"}),
        ("node lost", {"pod_reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}),
        ("node refused the pod", {"pod_reason": "NodePorts", "message": "Predicate NodePorts failed"}),
        ("image pull", {"reason": "ImageInspectError", "message": "Failed to inspect image"}),
        ("no usable GPU", {"exit": 128, "message": "nvidia-container-cli: device error: unknown device"}),
        ("driver too old", {"exit": 128, "message": "error: cuda>=13.0, please update your driver"}),
        ("permission denied", {"exit": 128, "message": 'exec: "/app/run.sh": permission denied: unknown'}),
        ("asked to stop", {"exit": 130}),
        ("illegal instruction", {"exit": 132}),
    ],
)
def test_states_without_a_log_name_the_cause(cause: str, ended: dict[str, Any]) -> None:
    found = triage([container_log(ranks=(2,), **ended)])
    assert found is not None
    assert found.cause is not None
    assert (found.rank, found.cause.name) == (2, cause)


def test_equal_errors_of_other_ranks_are_counted() -> None:
    watchdog = "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"
    logs = [
        container_log(
            f"@600 [rank{rank}]:[E1123 10:10:00.1 ProcessGroupNCCL.cpp:607] {watchdog.format(rank)}",
            instance=f"worker-{rank}",
            ranks=(rank,),
            exit=134,
            finished=610,
        )
        for rank in range(64)
        if rank != 17
    ]
    logs.append(container_log("@5 step 3 loss 0.5", instance="worker-17", ranks=(17,), exit=0, finished=6))
    found = triage(logs)
    assert found is not None
    assert (found.culprit, found.instance) == ("rank 17", "worker-17")
    assert found.cause is not None
    assert found.cause.name == "a rank left the collective"
    assert found.sentence.endswith("(ALLREDUCE) for a rank that never came: rank 17.")
    assert found.others == ("63 ranks: NCCL watchdog timeout after rank 17 left",)


def test_the_rank_behind_the_others_is_named() -> None:
    lines = [
        f"@600 [rank{rank}]:[E1123 10:10:00.1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={1203 if rank == 2 else 1204}, OpType=ALLREDUCE)"
        for rank in range(4)
    ]
    found = triage([container_log("\n".join(lines), ranks=(0, 1, 2, 3), exit=1, finished=610)])
    assert found is not None
    assert found.culprit == "rank 2"


def test_raise_from_shows_both_exceptions() -> None:
    text = (
        RAISED.format(at=1, error="KeyError: 'lr'")
        + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + RAISED.format(at=1.1, error="trainer.ConfigProblem: train.yaml has no learning rate")
    )
    found = triage([container_log(text, ranks=(0,), exit=1, finished=2)])
    assert found is not None
    assert found.error == "ConfigProblem: train.yaml has no learning rate (from KeyError: 'lr')"
    assert found.traceback[0].startswith("Traceback")
    assert found.traceback[-1].endswith("train.yaml has no learning rate")


LOGGERS = (
    "2026-11-23 10:00:05,123 - train - ERROR - ",
    "worker-3: ",
    "(RayTrainWorker pid=71, ip=10.0.0.4) ",
    "  3%|▎         | 3/100 [00:01<00:30,  3.1it/s]\r",
)


@pytest.mark.parametrize(
    ("prefix", "rank", "on_every_line"),
    [
        ("[rank2]: ", 2, True),
        ("[default2]:", 6, True),
        ("[1,2]<stderr>:", 2, True),
        *((prefix, None, on_every_line) for prefix in LOGGERS for on_every_line in (True, False)),
    ],
)
def test_prefixes_are_stripped(prefix: str, rank: int | None, on_every_line: bool) -> None:
    head, *rest = RAISED.format(at=5, error="ValueError: bad shard 7")[3:].splitlines()
    lines = [f"@5 {prefix}{head}", *(f"{prefix if on_every_line else ''}{line}" for line in rest)]
    found = triage([container_log("\n".join(lines), ranks=(4, 5, 6, 7), exit=1, finished=9)])
    assert found is not None
    assert found.error == "ValueError: bad shard 7"
    assert found.rank == rank


def test_a_cause_of_the_user_comes_first() -> None:
    mine = FailureCause(
        "lease", r"lease (?P<number>\d+) lost", "Lease {number} was lost[ on {node}].", "Wait."
    )
    logs = [container_log("RuntimeError: lease 12 lost: Connection refused", ranks=(0,), exit=1, finished=1)]
    found = triage(logs, (mine, *CAUSES))
    assert found is not None
    assert (found.cause, found.sentence, found.remedy) == (mine, "Lease 12 was lost.", "Wait.")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_each_cause_is_complete(cause: FailureCause) -> None:
    assert cause.pattern or cause.states
    assert cause.sentence.endswith(".")
    assert cause.remedy.endswith(".")
    patterns = [compiled(each) for each in (cause.pattern, *cause.details)]
    groups = {name for pattern in patterns for name in pattern.groupindex}
    assert set(re.findall(r"\{(\w+)\}", cause.sentence)) <= groups | {"message", "absent"}
    assert groups <= set(re.findall(r"\{(\w+)\}", cause.sentence))
    # With or without groups it is a sentence, which does not begin by naming the cause.
    for filled in (cause.fill({}), cause.fill(dict.fromkeys((*groups, "message", "absent"), "x 1"))):
        assert not re.search(r"[?{}\[\]]|\.\.|  |\(\)|\s[.,:;]|[:;,]\.", filled)
        assert not filled.lower().startswith(f"{cause.name.lower()}:")
    assert not re.search(r"\.\.|  |\s[,:;]", cause.remedy)


PIECES = (
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "ValueError: \x1b[31mbad\u202e shard",
    "[rank1]: KeyError: 'x'",
    "[default7]:Traceback (most recent call last):",
    "The above exception was the direct cause of the following exception:",
    "-- Process 999999 terminated with the following error:",
    "  + Exception Group Traceback (most recent call last):",
    "    | ",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "  what():  ",
    "  rank      : 99999 (local_rank: 0)",
    "  exitcode  : -99 (pid: 1)",
    "  traceback : Traceback (most recent call last):",
    "srun: error: n: task 3: Nonsense",
    "mpirun noticed that process rank 2 with PID 0 on node n exited on",
    "signal 99 (?)",
    "Missing ranks:",
    "1: [a, b]",
    "Rank 5, 6 failed to pass monitoredBarrier",
    "[E1 A.cpp:1] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=X)",
    "=   RANK 6 PID 1 RUNNING AT n",
    "=   EXIT CODE: 9",
    "step 3 loss 0.1",
    "",
)
BYTES = st.binary(max_size=60).map(lambda raw: raw.decode(errors="surrogateescape"))
LINES = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=60), BYTES), max_size=30).map("\n".join)
LOGS = st.builds(
    container_log,
    LINES,
    instance=st.text(max_size=20),
    ranks=st.sampled_from([(), (0,), (0, 1, 2, 3), (7,)]),
    exit=st.sampled_from([None, 0, 1, -1, 127, 137, 143, 255, 10**9]),
    finished=st.sampled_from([None, 0.0, 1e6]),
    launcher=st.booleans(),
    reason=st.sampled_from(["", "Error", "OOMKilled", "Completed", "\x1b[2J"]),
    message=st.text(max_size=40),
    pod_reason=st.sampled_from(["", "Evicted", "Nonsense"]),
    signal=st.sampled_from([0, 9, 99]),
)


def texts_of(found: Triage) -> list[str]:
    values = [getattr(found, name) for name in found.__struct_fields__]
    return [
        each
        for value in values
        for each in (value if isinstance(value, tuple) else [value])
        if isinstance(each, str)
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(LOGS, max_size=4))
@pytest.mark.slow
def test_triage_of_arbitrary_logs_is_sanitized_and_bounded(logs: list[ContainerLog]) -> None:
    found = triage(logs)
    if found is None:
        return
    assert len(found.traceback) <= 60
    assert len(found.others) <= 9
    for text in texts_of(found):
        assert len(text) <= 700
        assert sanitize(text) == text
        assert "\n" not in text


@pytest.mark.slow
def test_ten_thousand_lines_are_read_quickly() -> None:
    """The work is linear: twice the lines take about twice the time, and no line is slow."""
    chance = random.Random(1)
    words = [
        "loss",
        "0.51",
        "error rate",
        "step",
        "Epoch 3:  42%|████▏     | 420/1000",
        "INFO",
        "it/s",
        "a/b.py:3",
    ]
    noise = [" ".join(chance.choices(words, k=9)) for _ in range(9_900)]
    log = container_log(
        "\n".join([*noise, RAISED.format(at=900, error="ValueError: x"), *noise[:90]]), ranks=(0,), exit=1
    )
    began = time.process_time()
    found = triage([log])
    assert found is not None
    assert time.process_time() - began < 20
    for text in (
        "a" * 60_000,
        "Error: " * 9_000,
        "rank " * 9_000,
        "(" * 60_000,
        "at 1:2 [0] " * 6_000,
        "'" * 60_000,
        " " * 60_000,
    ):
        began = time.process_time()
        triage([container_log("\n".join([text] * 20), ranks=(0, 1), exit=1)])
        assert time.process_time() - began < 20, text[:20]


def test_the_users_frame_stays_between_folded_frames_of_libraries_below_the_advice() -> None:
    site = "/usr/lib/python3.11/site-packages"
    called = [
        f'  File "{site}/lightning/loop.py", line {n}, in run\n    self.advance()' for n in range(1, 41)
    ]
    torch = [
        f'  File "{site}/torch/nn/module.py", line {n}, in _call\n    return f(x)\n           ^^^^'
        for n in range(41, 90)
    ]
    lines = [
        'Traceback (most recent call last):\n  File "/src/fit.py", line 9, in <module>\n    main()',
        *called,
    ]
    lines += ['  File "/src/layers.py", line 31, in forward\n    return self.mix(x @ self.w)', *torch]
    lines += ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB."]
    found = triage([container_log("\n".join(lines), ranks=(2,), exit=1, finished=9)])
    assert found is not None
    answer = Cause("Failed: rank 2.", help=(found.remedy,), triage=found)
    shown = answer.as_text().splitlines()
    assert shown.index("What would help:") < shown.index("Error of rank 2:")
    assert shown[shown.index("Error of rank 2:") + 1 :] == [
        "  Traceback (most recent call last):",
        '    File "/src/fit.py", line 9, in <module>',
        "      main()",
        "    … 40 frames of libraries, to lightning/loop.py:40",
        '    File "/src/layers.py", line 31, in forward',
        "      return self.mix(x @ self.w)",
        "    … 49 frames of libraries, to torch/nn/module.py:89",
        "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.",
    ]


CASES = read_cases(Path(__file__).parent / "corpus")


def mistakes(case: dict[str, Any]) -> list[str]:
    """Return the differences between the expected and the found triage."""
    expected = case["expect"]
    found = triage([container_log(**log) for log in case["logs"]])
    if expected is None or found is None:
        return [] if found is expected else [f"found {found.reason if found else None}"]
    return [problem for problem in _differences(expected, found) if problem]


def _differences(expected: dict[str, Any], found: Triage) -> list[str]:
    name = found.cause.name if found.cause else ""
    return [
        "" if expected.get("rank", found.rank) == found.rank else f"rank {found.rank}: {found.reason}",
        "" if expected.get("instance", found.instance) == found.instance else f"instance {found.instance}",
        "" if expected.get("cause", name) == name else f"cause {name or None}, saw {found.saw}",
        "" if re.search(expected.get("phrase", ""), found.reason) else f"reason {found.reason}",
        "" if expected.get("sentence", "") in found.sentence else f"sentence {found.sentence}",
        "" if re.search(expected.get("others", ""), "; ".join(found.others)) else f"others {found.others}",
        "" if bool(found.remedy) == bool(name) and found.saw else "no remedy, or nothing seen",
        ""
        if found.cause is None
        or expected.get("retry", found.cause.can_retry_help) == found.cause.can_retry_help
        else "retry",
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_triage_names_culprit_and_cause(case: dict[str, Any]) -> None:
    assert mistakes(case) == []


def test_the_corpus_is_broad_and_names_its_sources() -> None:
    failures = [case for case in CASES if case["expect"] is not None]
    assert len(failures) >= 60
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert all(re.fullmatch(r"\w[\w.-]*/[\w.-]+(#\d+)?|https://.+", case["source"]) for case in failures)


TRACEBACK = 'Traceback (most recent call last):\n  File "/src/run.py", line 5, in <module>\n    main()\n'
TELLING_LINES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text())


@pytest.mark.parametrize(
    ("cause", "line"),
    [(cause, line) for cause, lines in TELLING_LINES.items() for line in lines],
    ids=lambda each: each[:40],
)
def test_the_last_line_of_a_failed_rank_names_the_cause(cause: str, line: str) -> None:
    is_exception = re.match(r"[\w.]+(?:Error|Exception|Pool)\b", line) is not None
    for text in (line, f"{TRACEBACK}{line}") if is_exception else (line,):
        found = triage([container_log(f"step 1 loss 0.5\n{text}", ranks=(3,), exit=1, finished=9)])
        assert found is not None
        assert (found.cause.name if found.cause else "") == cause, found
        assert found.rank == 3
        # What was recognised is shown, whichever part of a long line it was.
        assert set(re.findall(r"\w+", f"{found.error} {found.saw}")) & set(re.findall(r"\w+", line))
