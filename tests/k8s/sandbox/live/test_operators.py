"""Jobs in a running sandbox, from their creation to their end."""

from __future__ import annotations

import asyncio
import os

from k8s.client.client import Client
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import EVENTS, JOBS, PODS, SERVICES
from tests.k8s.sandbox.live.running import (
    Manifest,
    batch_job,
    comes,
    conditions,
    eventually,
    goes,
    has,
    log_of,
    marked,
    phase,
    pytorch_job,
)

SHOW = "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"


async def pods_of(client: Client, job: str, label: str = "training.kubeflow.org/job-name") -> list[Manifest]:
    return await client.list(PODS, "default", label_selector=f"{label}={job}")


async def test_a_pytorch_job_runs_to_its_success(client: Client) -> None:
    await client.create(PYTORCH_JOBS, pytorch_job("hello", "sh", "-c", SHOW), "default")
    done = await comes(client, PYTORCH_JOBS, "hello", has("Succeeded"))
    status = done["status"]
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"} or conditions(
        done
    ) == {"Created": "True", "Succeeded": "True"}
    assert {each["reason"] for each in status["conditions"]} >= {"PyTorchJobCreated", "PyTorchJobSucceeded"}
    assert status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert status["startTime"] <= status["completionTime"]
    worker = await comes(client, PODS, "hello-worker-0", phase("Succeeded"))
    master_words = (await log_of(client, "hello-master-0")).split()
    worker_words = (await log_of(client, "hello-worker-0")).split()
    assert master_words[:3] == ["0", "2", "127.0.0.1"]
    assert worker_words[:3] == ["1", "2", "127.0.0.1"]
    assert master_words[3] == worker_words[3]
    assert master_words[3].isdecimal() and master_words[3] != "23456"
    owner = worker["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", "hello", True)
    assert worker["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "worker"
    service = await client.get(SERVICES, "hello-worker-0", "default")
    assert service["spec"]["clusterIP"] == "None"
    events = await client.list(EVENTS, "default", field_selector="involvedObject.name=hello")
    assert {"SuccessfulCreatePod", "PyTorchJobSucceeded"} <= {event["reason"] for event in events}


async def test_two_jobs_at_once_have_ports_of_their_own(client: Client) -> None:
    for name in ("left", "right"):
        await client.create(PYTORCH_JOBS, pytorch_job(name, "sh", "-c", SHOW), "default")
    for name in ("left", "right"):
        await comes(client, PYTORCH_JOBS, name, has("Succeeded"))
    ports = {(await log_of(client, f"{name}-master-0")).split()[3] for name in ("left", "right")}
    assert len(ports) == 2


async def test_a_pod_of_a_job_finds_its_siblings_by_name(client: Client) -> None:
    env = {"PEER": "peers-worker-0:9000", "NAME": "peers", "OTHER": "elsewhere-worker-0"}
    command = "echo $PEER $NAME $OTHER $PET_RDZV_ENDPOINT"
    await client.create(PYTORCH_JOBS, pytorch_job("peers", "sh", "-c", command, env=env), "default")
    await comes(client, PYTORCH_JOBS, "peers", has("Succeeded"))
    assert await log_of(client, "peers-master-0") == "127.0.0.1:9000 peers elsewhere-worker-0\n"


async def test_an_elastic_job_grows_and_shrinks_by_its_last_workers(client: Client) -> None:
    command = "echo $PET_NNODES $PET_RDZV_BACKEND $GPUCONSOLE_RENDEZVOUS_HOST; sleep 300"
    job = pytorch_job("elastic", "sh", "-c", command, workers=2)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    await client.create(PYTORCH_JOBS, job, "default")
    first = await comes(client, PODS, "elastic-worker-0", phase("Running"))
    for replicas in (3, 2, 3):
        change = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}}
        await client.patch(PYTORCH_JOBS, "elastic", change, "default")
        if replicas == 2:
            await goes(client, PODS, "elastic-worker-2")
        else:
            await comes(client, PODS, "elastic-worker-2", phase("Running"))
    last = await comes(client, PODS, "elastic-worker-0", phase("Running"))
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert conditions(await client.get(PYTORCH_JOBS, "elastic", "default"))["Running"] == "True"
    while not (said := await log_of(client, "elastic-worker-2")):
        await asyncio.sleep(0.03)
    assert said == "1:4 c10d elastic-worker-0\n"
    await client.delete(PYTORCH_JOBS, "elastic", "default")
    await goes(client, PODS, "elastic-worker-0")


async def test_a_failed_pod_that_may_not_restart_fails_the_job(client: Client) -> None:
    await client.create(PYTORCH_JOBS, pytorch_job("breaks", "sh", "-c", "exit 1", workers=0), "default")
    failed = await comes(client, PYTORCH_JOBS, "breaks", has("Failed"))
    last = failed["status"]["conditions"][-1]
    assert last["reason"] == "PyTorchJobFailed"
    assert last["message"] == "PyTorchJob breaks is failed because 1 Master replica(s) failed."
    assert failed["status"]["replicaStatuses"]["Master"]["failed"] == 1


async def test_a_pod_that_may_restart_is_restarted_until_it_works(client: Client) -> None:
    command = "test -e seen || { touch seen; exit 1; }"
    job = pytorch_job("again", "sh", "-c", command, workers=0, restart="OnFailure")
    await client.create(PYTORCH_JOBS, job, "default")
    await comes(client, PYTORCH_JOBS, "again", has("Succeeded"))
    master = await client.get(PODS, "again-master-0", "default")
    assert master["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_retryable_exit_code_makes_a_new_pod_until_the_limit(client: Client) -> None:
    job = pytorch_job("codes", "sh", "-c", "exit 130", workers=0, restart="ExitCode", backoffLimit=1)
    await client.create(PYTORCH_JOBS, job, "default")
    failed = await comes(client, PYTORCH_JOBS, "codes", has("Failed"))
    assert "backoff limit" in failed["status"]["conditions"][-1]["message"]
    events = await client.list(EVENTS, "default", field_selector="involvedObject.name=codes")
    reasons = [event["reason"] for event in events]
    assert reasons.count("SuccessfulCreatePod") == 2
    assert "PyTorchJobRestarting" in reasons


async def test_restarts_in_place_count_against_the_limit(client: Client) -> None:
    job = pytorch_job("limited", "sh", "-c", "exit 1", workers=0, restart="OnFailure", backoffLimit=2)
    await client.create(PYTORCH_JOBS, job, "default")
    failed = await comes(client, PYTORCH_JOBS, "limited", has("Failed"))
    assert "backoff limit" in failed["status"]["conditions"][-1]["message"]


async def test_a_job_is_suspended_and_resumed(client: Client) -> None:
    mark = f"suspended-{os.getpid()}"
    job = pytorch_job("pausing", "sleep", "300", env={"MARK": mark})
    await client.create(PYTORCH_JOBS, job, "default")
    await comes(client, PYTORCH_JOBS, "pausing", has("Running"))
    await client.patch(PYTORCH_JOBS, "pausing", {"spec": {"runPolicy": {"suspend": True}}}, "default")
    paused = await comes(client, PYTORCH_JOBS, "pausing", has("Suspended"))
    assert conditions(paused)["Running"] == "False"
    await goes(client, PODS, "pausing-master-0")
    await goes(client, PODS, "pausing-worker-0")
    assert marked(mark) == []
    await client.patch(PYTORCH_JOBS, "pausing", {"spec": {"runPolicy": {"suspend": False}}}, "default")
    resumed = await comes(client, PYTORCH_JOBS, "pausing", has("Running"))
    assert conditions(resumed)["Suspended"] == "False"
    await client.delete(PYTORCH_JOBS, "pausing", "default")
    await goes(client, PODS, "pausing-master-0")


async def test_a_deleted_job_takes_its_pods_and_processes_along(client: Client) -> None:
    mark = f"gone-{os.getpid()}"
    job = pytorch_job("doomed", "sh", "-c", "(setsid sleep 300 &); sleep 300", env={"MARK": mark})
    await client.create(PYTORCH_JOBS, job, "default")
    await comes(client, PYTORCH_JOBS, "doomed", has("Running"))
    eventually(lambda: len(marked(mark)) >= 4)
    await client.delete(PYTORCH_JOBS, "doomed", "default")
    await goes(client, PYTORCH_JOBS, "doomed")
    for name in ("doomed-master-0", "doomed-worker-0"):
        await goes(client, PODS, name)
    assert marked(mark) == []


async def test_a_job_made_again_under_its_name_takes_no_old_pods(client: Client) -> None:
    job = pytorch_job("twin", "sh", "-c", "trap '' TERM; sleep 0.5; sleep 300", workers=0)
    await client.create(PYTORCH_JOBS, job, "default")
    first = await comes(client, PODS, "twin-master-0", phase("Running"))
    await client.delete(PYTORCH_JOBS, "twin", "default")
    await goes(client, PYTORCH_JOBS, "twin")
    await client.create(PYTORCH_JOBS, pytorch_job("twin", "true", workers=0), "default")
    await comes(client, PYTORCH_JOBS, "twin", has("Succeeded"))
    second = await client.get(PODS, "twin-master-0", "default")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_pods_are_cleaned_up_as_the_policy_says(client: Client) -> None:
    command = "test $RANK = 0 || sleep 300"
    for policy in ("None", "Running", "All"):
        job = pytorch_job(f"clean-{policy.lower()}", "sh", "-c", command, cleanPodPolicy=policy)
        await client.create(PYTORCH_JOBS, job, "default")
    for policy in ("none", "running", "all"):
        await comes(client, PYTORCH_JOBS, f"clean-{policy}", has("Succeeded"))
    await goes(client, PODS, "clean-running-worker-0")
    await goes(client, PODS, "clean-all-worker-0")
    await goes(client, PODS, "clean-all-master-0")
    left = {each["metadata"]["name"] for each in await client.list(PODS, "default")}
    assert {"clean-none-master-0", "clean-none-worker-0", "clean-running-master-0"} <= left
    await client.delete(PYTORCH_JOBS, "clean-none", "default")
    await goes(client, PODS, "clean-none-worker-0")


async def test_a_finished_job_goes_after_its_time_to_live(client: Client) -> None:
    job = pytorch_job("fleeting", "true", workers=0, ttlSecondsAfterFinished=1)
    await client.create(PYTORCH_JOBS, job, "default")
    await comes(client, PYTORCH_JOBS, "fleeting", has("Succeeded"))
    await goes(client, PYTORCH_JOBS, "fleeting")
    await goes(client, PODS, "fleeting-master-0")


async def test_a_job_over_its_deadline_fails(client: Client) -> None:
    job = pytorch_job("overdue", "sleep", "300", activeDeadlineSeconds=1, cleanPodPolicy="Running")
    await client.create(PYTORCH_JOBS, job, "default")
    failed = await comes(client, PYTORCH_JOBS, "overdue", has("Failed"))
    assert "specified deadline" in failed["status"]["conditions"][-1]["message"]
    await goes(client, PODS, "overdue-master-0")


async def test_a_job_that_does_not_fit_waits_as_a_whole_and_says_why(client: Client) -> None:
    big = pytorch_job("big", "sleep", "300", workers=2, gpus=4)
    await client.create(PYTORCH_JOBS, big, "default")
    for name in ("big-master-0", "big-worker-0", "big-worker-1"):
        waits = await comes(client, PODS, name, lambda each: each["status"].get("conditions"))
        said = waits["status"]["conditions"][0]
        assert not waits["spec"].get("nodeName")
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        assert said["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    events = await client.list(EVENTS, "default", field_selector="involvedObject.name=big-master-0")
    assert [event["reason"] for event in events] == ["FailedScheduling"]
    await client.delete(PYTORCH_JOBS, "big", "default")
    await goes(client, PODS, "big-master-0")


async def test_a_waiting_job_starts_when_another_makes_room(client: Client) -> None:
    await client.create(PYTORCH_JOBS, pytorch_job("first", "sleep", "300", gpus=4), "default")
    await comes(client, PYTORCH_JOBS, "first", has("Running"))
    await client.create(PYTORCH_JOBS, pytorch_job("second", "true", gpus=4), "default")
    await comes(client, PODS, "second-worker-0", lambda each: each["status"].get("conditions"))
    await client.delete(PYTORCH_JOBS, "first", "default")
    await comes(client, PYTORCH_JOBS, "second", has("Succeeded"), within_s=60.0)


async def test_a_job_prefers_one_node_to_two(client: Client) -> None:
    await client.create(PYTORCH_JOBS, pytorch_job("packed", "sleep", "300", gpus=2), "default")
    pods = [await comes(client, PODS, f"packed-{role}-0", phase("Running")) for role in ("master", "worker")]
    assert len({each["spec"]["nodeName"] for each in pods}) == 1
    await client.delete(PYTORCH_JOBS, "packed", "default")
    await goes(client, PODS, "packed-master-0")


async def test_an_indexed_job_gives_each_pod_its_number(client: Client) -> None:
    command = "echo index $JOB_COMPLETION_INDEX"
    job = batch_job("numbers", "sh", "-c", command, completions=3, parallelism=2, completionMode="Indexed")
    await client.create(JOBS, job, "default")
    done = await comes(client, JOBS, "numbers", has("Complete"))
    assert (done["status"]["succeeded"], done["status"]["completedIndexes"]) == (3, "0-2")
    assert done["status"].get("active") is None
    pods = await pods_of(client, "numbers", "job-name")
    names = sorted(each["metadata"]["name"] for each in pods)
    assert [name.rsplit("-", 1)[0] for name in names] == ["numbers-0", "numbers-1", "numbers-2"]
    assert [await log_of(client, name) for name in names] == ["index 0\n", "index 1\n", "index 2\n"]


async def test_a_failing_job_reaches_its_limit(client: Client) -> None:
    await client.create(JOBS, batch_job("hopeless", "false", backoffLimit=0), "default")
    failed = await comes(client, JOBS, "hopeless", has("Failed"))
    assert failed["status"]["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert failed["status"]["failed"] == 1


async def test_a_plain_job_is_suspended_and_resumed(client: Client) -> None:
    job = batch_job("sleepy", "sleep", "300", suspend=True)
    await client.create(JOBS, job, "default")
    await comes(client, JOBS, "sleepy", has("Suspended"))
    assert await pods_of(client, "sleepy", "job-name") == []
    await client.patch(JOBS, "sleepy", {"spec": {"suspend": False}}, "default")
    await comes(client, JOBS, "sleepy", lambda each: each["status"].get("ready") == 1)
    await client.patch(JOBS, "sleepy", {"spec": {"suspend": True}}, "default")
    await comes(client, JOBS, "sleepy", lambda each: not each["status"].get("active"))
    while await pods_of(client, "sleepy", "job-name"):
        await asyncio.sleep(0.03)
    await client.delete(JOBS, "sleepy", "default")
