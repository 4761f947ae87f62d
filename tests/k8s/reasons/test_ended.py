"""Jobs that failed or restart, and jobs without a problem."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from k8s.kinds import JobRef
from k8s.reasons.cause import Cause
from k8s.reasons.causes.ended import _triage_facts
from k8s.reasons.evidence import Evidence
from k8s.reasons.failures.causes import Triage
from k8s.reasons.rules import explain
from k8s.snapshot import CurveAlert, LifeSigns, Silence, Straggler
from k8s.status import Status
from tests.support.evidence import (
    NOW,
    ago,
    ended,
    event,
    evidence_of,
    explained,
    held,
    instance,
    job_of,
    on_node,
    pod,
    spec_of,
    starting,
    texts,
    waiting,
)
from tests.support.failures import container_log
from tests.support.objects import Object, node, pytorch_job
from trainer.catalogue import find
from trainer.messages import DamagedCheckpoints, MissingData, NotFinite, NothingToTrain, PortInUse, TooFewGpus

MOUNTS = spec_of(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}])


@pytest.mark.parametrize(
    ("saw", "lines"),
    [("", []), ("ValueError: bad shard 7", []), ("cuda: out of memory", ["cuda: out of memory"])],
)
def test_the_line_of_a_cause_is_a_fact_unless_it_is_the_error_itself(saw: str, lines: list[str]) -> None:
    found = Triage("rank 2", 2, "worker-0", "", "ValueError: bad shard 7", None, "", "", saw, (), (), None)
    assert [each.text for each in _triage_facts(found) if each.kind == "line"] == lines


def test_a_cause_is_given_by_its_sentence_and_a_message_once() -> None:
    message = 'exec: "trian": executable file not found in $PATH'
    end = ended(128, reason="StartError", message=message)
    shown = evidence_of(
        instance("worker-0", Status.FAILED, node="a"),
        status=Status.FAILED,
        pods=[starting("worker-0", containerStatuses=[end])],
    )
    log = container_log(exit=128, reason="StartError", message=message)
    answer = explain(replace(shown, logs=(log,)))
    assert texts(answer, "cause") == ["The image has no program trian in its PATH."]
    assert answer.as_text().count(message) == 1


def failed(*pods: Any, instances: Any = None, **parts: Any) -> Cause:
    found = instances or [instance(each.metadata.name[5:], Status.FAILED, node="a") for each in pods]
    return explained(*found, status=Status.FAILED, pods=pods, **parts)


def test_the_first_rank_that_ended_badly_is_to_blame() -> None:
    ranked = [
        instance(f"worker-{i}", Status.FAILED, node="a", ranks=tuple(range(8 * i, 8 * i + 8))) for i in (0, 1)
    ]
    answer = failed(
        starting("worker-0", containerStatuses=[ended(1, at=10)]),
        starting("worker-1", containerStatuses=[ended(1, at=20, message="CUDA error")]),
        instances=ranked,
    )
    assert answer.sentence == "Failed: worker-1 exit 1 first, 11:59:40."
    assert texts(answer, "pods")[:3] == [
        "worker-1 says: CUDA error",
        "worker-1: pytorch exit 1, 11:59:40",
        "worker-0: pytorch exit 1, 11:59:50",
    ]


def test_an_init_container_that_ended_a_job_is_named_and_so_is_its_log() -> None:
    code = ended(1, at=10, message="Remote branch nope not found") | {"name": "init-code"}
    answer = failed(starting("worker-0", initContainerStatuses=[code]))
    assert "worker-0 says: Remote branch nope not found" in texts(answer, "pods")
    assert answer.help[0].endswith("gpuconsole logs bert -i worker-0 -c init-code")


def test_a_rank_terminated_by_sigterm_is_not_blamed() -> None:
    answer = failed(
        starting("worker-0", containerStatuses=[ended(143, at=20)]),
        starting("worker-1", containerStatuses=[ended(1, at=10)]),
    )
    assert answer.sentence == "Failed: worker-1 exit 1 first, 11:59:50."


def test_an_oom_kill_is_reported_with_the_memory_limit() -> None:
    spec = spec_of(nodeName="a")
    spec["containers"][0]["resources"]["limits"]["memory"] = "64Gi"
    answer = failed(pod("worker-0", spec, containerStatuses=[ended(137, "OOMKilled")]))
    assert answer.sentence == ("Failed: worker-0 OOMKilled, 11:59:50, its memory limit is 64Gi.")


def told_of(code: int, *command: str, name: str = "pytorch") -> str:
    """Return the explanation of an exit code for a container that ran `command`."""
    spec = spec_of(nodeName="a")
    spec["containers"][0] |= {"command": list(command[:1]), "args": list(command[1:])}
    spec["containers"].append({"name": "sidecar", "command": ["serve"]})
    answer = failed(pod("worker-0", spec, containerStatuses=[ended(code, name=name)]))
    return "; ".join(text for text in texts(answer, "pods") if " means " in text)


@pytest.mark.parametrize("trainer", ["ddp", "mpi"])
@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_the_exit_codes_of_the_packaged_trainers_are_explained(trainer: str, launcher: Any) -> None:
    errors = [DamagedCheckpoints, NotFinite, MissingData, TooFewGpus, PortInUse, NothingToTrain]
    command = find(trainer).command(["--epochs", "3"], launcher=launcher)
    said = [told_of(error.exit_status, *command) for error in errors]
    assert said == [
        "exit 3 means that there are checkpoints, but none can be read",
        "exit 4 means that the loss or a weight is not finite",
        "exit 5 means that training data is missing or damaged",
        "exit 6 means that a node has fewer GPUs than processes, or only some ranks have one",
        "exit 7 means that the rendezvous port is in use",
        "exit 8 means that all epochs had already run, with other settings, so nothing was trained",
    ]
    assert told_of(4, "python", "-P", "-m", f"trainer.train_{trainer}") == said[1]
    assert told_of(143, *command) == "exit 143 means it was asked to stop (SIGTERM)"
    assert told_of(1, *command) == ""


def test_exit_codes_of_other_programs_are_not_explained_as_trainer_codes() -> None:
    cases: list[tuple[str, ...]] = [
        ("python", "train.py"),
        ("python", "-m", "trainer.other"),
        ("python", "grep.py", "trainer.train_ddp"),
        ("sh", "-c", "pip install x && python -m trainer.train_ddp"),
        (),
    ]
    for command in cases:
        assert [told_of(code, *command) for code in range(3, 8)] == [""] * 5
        trained = "python", "-m", "trainer.train_ddp"
        assert told_of(4, *trained, name="sidecar") == "", "another container of the trainer's pod"


def test_a_preemption_names_the_job_that_needed_the_room() -> None:
    uid = "0f9a4f6e-55a1-4c65-9d5b-6a53f7a0c111"
    preemptor = structs.replace(instance(), pod_uid=uid)
    urgent = replace(job_of([preemptor]), ref=JobRef("lab", "urgent", "Job", "batch/v1"), user="mai")
    preempted = event("bert-worker-0", "Preempted", f"Preempted by pod {uid} on node a")
    answer = explained(
        instance("worker-0", Status.RESTARTING), status=Status.RESTARTING, events=(preempted,), jobs=(urgent,)
    )
    assert answer.sentence == "Restarts: bert-worker-0 was preempted: Preempted by urgent of mai on node a."


def condition(reason: str, message: str) -> list[Object]:
    return [{"type": "Failed", "status": "True", "reason": reason, "message": message}]


def test_an_exceeded_deadline_is_reported_with_its_length() -> None:
    manifest = pytorch_job("bert") | {"status": {"conditions": []}}
    manifest["spec"]["runPolicy"] = {"activeDeadlineSeconds": 7200}
    late = failed(
        instances=[instance(has_pod=False)],
        manifest=manifest,
        conditions=condition("DeadlineExceeded", "Job was active longer than specified deadline"),
    )
    assert late.sentence == (
        "Failed: ran longer than its deadline of 2 h; its pods are gone, and their logs with them."
    )


@pytest.mark.parametrize("reached", ["Job has reached the specified backoff limit", ""])
def test_a_job_with_backoff_limit_zero_is_not_reported_as_out_of_retries(reached: str) -> None:
    manifest = pytorch_job("bert") | {"status": {"conditions": []}}
    manifest["spec"]["runPolicy"] = {"backoffLimit": 0}
    end = {"manifest": manifest, "conditions": condition("BackoffLimitExceeded", reached)}
    answer = failed(starting("worker-0", containerStatuses=[ended(1)]), **end)
    assert answer.sentence == "Failed: worker-0 exit 1, 11:59:50; it had no retries."
    assert answer.help == ("See what it printed: gpuconsole logs bert -i worker-0",)
    unstarted = starting("worker-0", containerStatuses=[ended(128, reason="StartError")])
    assert failed(unstarted, **end).help == ()
    assert failed(instances=[instance(has_pod=False)], **end).help == ()
    gone = failed(instances=[instance(has_pod=False)], **end)
    assert gone.sentence == "Failed: it had no retries; its pods are gone, and their logs with them."
    manifest["spec"]["runPolicy"] = {"backoffLimit": 1}
    gone = failed(instances=[instance(has_pod=False)], **end)
    assert gone.sentence.startswith("Failed: all its retries are used;")


def test_a_restarting_job_reports_its_restart_count_and_last_exit() -> None:
    crashed = starting(
        phase="Running",
        containerStatuses=[
            waiting("CrashLoopBackOff")
            | {
                "lastState": {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": ago(30)}},
                "restartCount": 4,
            }
        ],
    )
    restarting = instance("worker-0", Status.RESTARTING, node="a")
    answer = explained(restarting, status=Status.RESTARTING, pods=[crashed])
    assert answer.sentence == "Restarts: worker-0 exit 137 (SIGKILL), 11:59:30, 4 restarts so far."
    assert answer.help == ("See what it printed: gpuconsole logs bert -i worker-0 --previous",)


def test_a_running_or_succeeded_job_is_reported_with_its_pod_counts() -> None:
    up = [instance(f"worker-{index}", Status.RUNNING, node="a") for index in range(4)]
    answer = explained(*up, status=Status.RUNNING)
    assert answer.sentence == "It runs: 4 of 4 pods."
    assert texts(answer, "pods") == ["Running: worker-0, worker-1, worker-2 and worker-3"]
    done = [instance(each.name, Status.SUCCEEDED, node="a") for each in up]
    answer = explained(*up[:2], *done[2:], status=Status.RUNNING)
    assert answer.sentence == "It runs: 2 of 4 pods, 2 have ended well."
    assert explained(*done, status=Status.SUCCEEDED).sentence == "It succeeded: 4 of 4 pods."


def test_pods_that_were_removed_when_the_job_ended_are_not_called_pending() -> None:
    launcher = instance("launcher-0", Status.SUCCEEDED, node="a")
    removed = [instance(f"worker-{index}", Status.SUCCEEDED, has_pod=False) for index in range(2)]
    answer = explained(launcher, *removed, status=Status.SUCCEEDED)
    assert answer.sentence == "It succeeded: 3 of 3 pods."
    assert texts(answer, "pods") == ["Succeeded: launcher-0", "Gone: worker-0 and worker-1"]


def test_a_partly_running_job_reports_why_its_other_pods_wait() -> None:
    up = instance("master-0", Status.RUNNING, node="a")
    answer = explained(
        up,
        instance("worker-0"),
        status=Status.RUNNING,
        pods=[pod("worker-0")],
        nodes=[node("a"), node("b")],
        rows=[held("a", 8, bert=8), held("b", 8, gpt=8)],
    )
    assert answer.sentence == "Waits for GPUs: worker-0 needs 8 nvidia.com/gpu; none is free (16 in use)."


def test_several_causes_are_all_reported_deepest_first() -> None:
    broken = starting(containerStatuses=[waiting("ErrImagePull", "not found")])
    answer = explained(
        on_node(),
        instance("worker-1"),
        pods=[broken, pod("worker-1", MOUNTS)],
        nodes=[node("a"), node("b")],
        rows=[held("a", 8, gpt=8), held("b", 8, gpt=8)],
        claims={"corpus": None},
    )
    assert answer.sentence == "Waits for volume claim corpus, which does not exist in default."
    assert texts(answer, "also") == [
        "Waits for its image: lab/train:1 does not exist (worker-0 on a).",
        "Waits for GPUs: worker-1 needs 8 nvidia.com/gpu; none is free (16 in use).",
    ]


def test_an_unexplained_job_is_reported_with_the_checked_evidence() -> None:
    odd = instance("worker-0", Status.RESTARTING, node="a")
    answer = explained(odd, status=Status.PENDING, reason="who knows", nodes=[node("a")])
    assert answer.sentence == ("Nothing that was checked explains it: 0 of 1 pod; its status says who knows.")
    assert texts(answer, "checked") == ["0 pods, 1 node, 0 events, created 5 min ago"]


def test_the_full_text_of_an_answer_starts_with_its_sentence() -> None:
    answer = explained(instance(), pods=[pod("master-0", MOUNTS)], claims={"corpus": None})
    assert answer.as_text().splitlines()[:4] == [
        "Waits for volume claim corpus, which does not exist in default.",
        "",
        "Seen:",
        "  claim: master-0 mounts corpus",
    ]
    assert "What would help:" in answer.as_text()


def test_silence_bad_curves_and_stragglers_of_a_running_job_are_reported() -> None:
    def why(status: Status = Status.RUNNING, **signs: Any) -> Cause:
        job = job_of([instance(status=status)], status)
        return explain(Evidence(job=job, now=NOW, signs=LifeSigns(**signs)))

    since = NOW - timedelta(seconds=312)
    found = why(silence=Silence(since, 2.4))
    assert found.sentence == "It runs, but no line for 5 min, usually every 2 s."
    assert texts(found, "silence") == ["newest line at 11:54:48"] and "diagnose bert" in found.help[0]
    found = why(silence=Silence(since, 0.25, ("rank 1", "rank 3")))
    assert found.sentence == "It runs, but no line of rank 1 and rank 3 for 5 min, usually every 0.25 s."
    slow_steps = CurveAlert("slow", "a step takes 12s")
    found = why(alerts=(CurveAlert("nan", "its newest loss is not a finite number"), slow_steps))
    assert found.sentence == "It runs, but its newest loss is not a finite number."
    assert found.help == ("See since when: gpuconsole curves bert",)
    over = why(Status.SUCCEEDED, alerts=(CurveAlert("diverged", "its loss is high"),)).sentence
    assert over == "It succeeded: 1 of 1 pod, but its loss is high."
    pod = structs.replace(instance(status=Status.RUNNING), rank_restarts=1, reason="rank 0 exit 3, again")
    restarted = explain(Evidence(job=job_of([pod], Status.RUNNING), now=NOW))
    assert texts(restarted, "restarts") == ["master-0: rank 0 exit 3, again"]
    found = why(alerts=(CurveAlert("diverged", "its loss is high"), slow_steps))
    assert found.sentence == "It runs, but its loss is high and a step takes 12s."
    assert found.help == ("See since when: gpuconsole curves bert",)
    slow = (Straggler("rank 3", "worker-3", 12),)
    assert why(stragglers=slow).sentence == "It runs, but rank 3 is 12 steps behind."
    waits = (Straggler("rank 3", "worker-3", 0, 0.41),)
    assert texts(why(stragglers=waits), "straggler") == ["rank 3 waits for data 41% of each step"]


def test_a_rank_that_blocked_the_others_is_named_even_while_its_pod_runs() -> None:
    waited = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"
    text = f"Traceback (most recent call last):\n  File 'a.py', line 1, in <module>\n{waited}"
    logs = (
        container_log(text, instance="master-0", ranks=(0,), exit=1),
        container_log("loading", instance="worker-0", ranks=(1,)),
    )
    broken = instance("master-0", Status.FAILED, ranks=(0,))
    running = instance("worker-0", Status.RUNNING, ranks=(1,))
    pods = [starting("master-0", containerStatuses=[ended(1)])]
    found = explained(broken, running, status=Status.FAILED, pods=pods, logs=logs)
    assert found.sentence.startswith("Failed: rank 1 kept the others waiting, ")
    assert found.help[-1] == "See what it printed: gpuconsole logs bert -r 1"
