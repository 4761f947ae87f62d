"""What the sandbox leaves out is said when an object is created, or the object is refused."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.sandbox.api.admission.unsupported import LONGEST_WARNING, MOST_WARNINGS, warnings_of
from tests.k8s.sandbox.calls import APPLY, Answer, Api, Object, job, pod, thing, torch_job

PROBE = {"exec": {"command": ["true"]}}


def with_container(obj: Object, **fields: Any) -> Object:
    """A pod whose container has these fields too."""
    obj["spec"]["containers"][0] |= fields
    return obj


def warned(answer: Answer) -> list[str]:
    return [words for name, words in answer.headers.items() if name == "Warning"]


async def events(api: Api) -> list[tuple[str, str, str]]:
    found = (await api.get("events")).body["items"]
    return [(each["involvedObject"]["name"], each["type"], each["message"]) for each in found]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"livenessProbe": PROBE}, "livenessProbe: the sandbox ignores it: a container that hangs"),
        ({"startupProbe": PROBE}, "startupProbe: the sandbox ignores it: readiness is asked for"),
        ({"readinessProbe": {"grpc": {"port": 1}}}, "readinessProbe.grpc: the sandbox ignores it"),
        ({"lifecycle": {"postStart": PROBE}}, "lifecycle.postStart: the sandbox ignores it"),
    ],
)
async def test_a_field_that_is_ignored_is_warned_of(sandbox: Api, fields: Object, said: str) -> None:
    answer = await sandbox.create("pods", with_container(pod("p"), **fields))
    assert answer.code == 201
    (words,) = warned(answer)
    assert words.startswith(f'299 - "spec.containers[0].{said}') and words.endswith('"')
    assert await events(sandbox) == [("p", "Warning", words[7:-1])]


async def test_what_is_honoured_is_not_warned_of(sandbox: Api) -> None:
    fields = {"readinessProbe": PROBE, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}
    side = {"name": "s", "image": "x", "restartPolicy": "Always", "readinessProbe": PROBE}
    manifest = with_container(pod("p"), **fields)
    manifest["spec"]["initContainers"] = [side]
    for answer in (
        await sandbox.create("pods", manifest),
        await sandbox.create("batch/v1/jobs", job("j", managedBy="kubernetes.io/job-controller")),
    ):
        assert (answer.code, warned(answer)) == (201, [])
    assert await events(sandbox) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("podFailurePolicy", {"rules": []}),
        ("backoffLimitPerIndex", 1),
        ("backoffLimitPerIndex", 0),
        ("maxFailedIndexes", 1),
        ("successPolicy", {"rules": []}),
        ("podReplacementPolicy", "Failed"),
    ],
)
async def test_a_policy_of_a_job_that_is_ignored_is_warned_of(sandbox: Api, field: str, value: Any) -> None:
    answer = await sandbox.create("batch/v1/jobs", job("j", **{field: value}))
    (words,) = warned(answer)
    assert words.startswith(f'299 - "spec.{field}: the sandbox ignores it: ')
    assert await events(sandbox) == [("j", "Warning", words[7:-1])]


async def test_a_job_of_any_kind_says_where_the_field_stands(sandbox: Api) -> None:
    manifest = torch_job("t")
    template = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["spec"]["containers"][0]["livenessProbe"] = PROBE
    template["spec"]["readinessGates"] = [{"conditionType": "x"}]
    answer = await sandbox.create("kubeflow.org/v1/pytorchjobs", manifest)
    at = "spec.pytorchReplicaSpecs.Master.template.spec"
    assert [words.split(": ")[0] for words in warned(answer)] == [
        f'299 - "{at}.readinessGates',
        f'299 - "{at}.containers[0].livenessProbe',
    ]


async def test_a_field_in_a_list_of_roles_is_found(sandbox: Api) -> None:
    template = {"spec": with_container(pod("p"), livenessProbe=PROBE)["spec"]}
    manifest = thing(
        "PyTorchTrainingJob", "t", spec={"replicaSpecs": [{"type": "node", "template": template}]}
    )
    manifest["apiVersion"] = "batch.tensorstack.dev/v1beta1"
    answer = await sandbox.create("batch.tensorstack.dev/v1beta1/pytorchtrainingjobs", manifest)
    at = "spec.replicaSpecs[0].template.spec.containers[0].livenessProbe"
    assert [words.split(": ")[0] for words in warned(answer)] == [f'299 - "{at}']


async def test_what_a_train_job_would_fetch_is_warned_of(sandbox: Api) -> None:
    fetched = {"dataset": {"storageUri": "hf://a/b"}}
    manifest = thing("TrainJob", "t", spec={"runtimeRef": {"name": "r"}, "initializer": fetched})
    manifest["apiVersion"] = "trainer.kubeflow.org/v1alpha1"
    answer = await sandbox.create("trainer.kubeflow.org/v1alpha1/trainjobs", manifest)
    assert [words.split(": ")[0] for words in warned(answer)] == ['299 - "spec.initializer']


async def test_a_dry_run_warns_and_writes_no_event(sandbox: Api) -> None:
    answer = await sandbox.create("pods", with_container(pod("p"), livenessProbe=PROBE), dryRun="All")
    assert len(warned(answer)) == 1
    assert await events(sandbox) == []


async def test_an_object_that_is_applied_is_warned_of_once(sandbox: Api) -> None:
    manifest = with_container(pod("p"), livenessProbe=PROBE)
    path = sandbox.path("pods", "p")
    applied = [
        await sandbox.call("PATCH", path, manifest, content_type=APPLY, fieldManager="x") for _ in "ab"
    ]
    assert [(each.code, len(warned(each))) for each in applied] == [(201, 1), (200, 0)]
    assert len(await events(sandbox)) == 1


async def test_a_pod_of_a_job_repeats_nothing_as_an_event(sandbox: Api) -> None:
    made = await sandbox.made("batch/v1/jobs", job("j"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"]}
    manifest = with_container(pod("p", ownerReferences=[{**owner, "controller": True}]), livenessProbe=PROBE)
    await sandbox.made("pods", manifest)
    assert await events(sandbox) == []


async def test_the_same_name_again_is_warned_of_again(sandbox: Api) -> None:
    for _ in "ab":
        await sandbox.made("pods", with_container(pod("p" * 240), livenessProbe=PROBE))
        await sandbox.delete("pods", "p" * 240, gracePeriodSeconds="0")
    assert len(await events(sandbox)) == 2


async def test_names_in_a_warning_cannot_break_the_header(sandbox: Api) -> None:
    manifest = torch_job("t")
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    roles['a"\\\r\nX-Evil: 1\u00e9'] = roles["Master"]
    roles["Master"]["template"]["spec"]["containers"][0]["livenessProbe"] = PROBE
    answer = await sandbox.create("kubeflow.org/v1/pytorchjobs", manifest)
    assert answer.code == 201 and "X-Evil" not in answer.headers
    assert 'Specs.a\\"\\\\??X-Evil: 1?.template' in warned(answer)[1]


def test_the_warnings_of_one_object_are_few_and_short() -> None:
    containers = [{"name": f"c{number}", "livenessProbe": PROBE} for number in range(100)]
    spec = {"x" * 500: {"containers": containers[:1]}, "template": {"containers": containers}}
    found = warnings_of("thing", {"spec": spec})
    assert (len(found), max(map(len, found))) == (MOST_WARNINGS, LONGEST_WARNING)


@pytest.mark.parametrize("spec", [None, 5, [], {"containers": 5}, {"containers": [5, {"lifecycle": 5}]}])
def test_objects_of_any_shape_are_looked_at(spec: Any) -> None:
    for key in ("jobs.batch", "pods", "thing"):
        assert warnings_of(key, {"spec": spec}) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"readinessProbe": {}}, "readinessProbe"),
        ({"readinessProbe": {**PROBE, "tcpSocket": {"port": 1}}}, "readinessProbe.tcpSocket"),
        ({"readinessProbe": {"exec": {}}}, "readinessProbe.exec.command"),
        ({"readinessProbe": {"httpGet": {"path": "/"}}}, "readinessProbe.httpGet.port"),
        ({"readinessProbe": {**PROBE, "periodSeconds": -1}}, "readinessProbe.periodSeconds"),
        ({"lifecycle": {"preStop": {}}}, "lifecycle.preStop"),
        ({"restartPolicy": "Always"}, "restartPolicy"),
    ],
)
async def test_a_probe_that_cannot_be_run_is_refused(sandbox: Api, fields: Object, field: str) -> None:
    answer = await sandbox.create("pods", with_container(pod("p"), **fields))
    assert (answer.code, answer.fields) == (422, [f"spec.containers[0].{field}"])


async def test_an_init_container_restarts_always_or_as_its_pod_does(sandbox: Api) -> None:
    manifest = pod("p")
    manifest["spec"]["initContainers"] = [{"name": "i", "image": "x", "restartPolicy": "Never"}]
    answer = await sandbox.create("pods", manifest)
    assert (answer.code, answer.fields) == (422, ["spec.initContainers[0].restartPolicy"])


async def test_a_job_of_another_controller_is_refused(sandbox: Api) -> None:
    answer = await sandbox.create("batch/v1/jobs", job("j", managedBy="example.com/other"))
    assert (answer.code, answer.fields) == (422, ["spec.managedBy"])


async def test_probes_have_the_defaults_of_a_real_server(sandbox: Api) -> None:
    probe = {"httpGet": {"port": 80}}
    made = await sandbox.made("pods", with_container(pod("p"), readinessProbe=probe))
    assert made["spec"]["containers"][0]["readinessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


async def test_a_node_with_containers_is_only_a_node(sandbox: Api) -> None:
    node = thing("Node", "n", spec={"containers": [{"livenessProbe": PROBE}]})
    assert (await sandbox.call("POST", "/api/v1/nodes", node)).code == 201
    assert await events(sandbox) == []
