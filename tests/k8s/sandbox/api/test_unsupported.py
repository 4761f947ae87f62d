"""Ignored fields cause a warning; objects that cannot run here, also with an open rendezvous, are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8s.sandbox.api.admission.schemas import SHAPES
from k8s.sandbox.api.admission.unsupported import (
    MAX_WARNING_LENGTH,
    MAX_WARNINGS,
    OF_CONTAINER,
    OF_MOUNT,
    OF_POD,
    warnings_of,
)
from k8s.sandbox.api.admission.validation import REFUSED
from k8s.sandbox.api.http.server import Server
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.calls import TORCH_JOBS, Answer, Api, Object, job, pod, thing, torch_job
from tests.k8s.sandbox.conftest import TOKEN

PROBE = {"exec": {"command": ["true"]}}


def with_container(obj: Object, **fields: Any) -> Object:
    """Add fields to the container of a pod."""
    obj["spec"]["containers"][0] |= fields
    return obj


def warned(answer: Answer) -> list[str]:
    return [warning for name, warning in answer.headers.items() if name == "Warning"]


async def events(api: Api) -> list[tuple[str, str, str]]:
    warnings = (await api.get("events")).body["items"]
    return [(each["involvedObject"]["name"], each["type"], each["message"]) for each in warnings]


async def test_ignored_container_fields_cause_a_warning(sandbox: Api) -> None:
    for fields, message in (
        ({"livenessProbe": PROBE}, "livenessProbe: the sandbox ignores it: a container that hangs"),
        ({"startupProbe": PROBE}, "startupProbe: the sandbox ignores it: the container has"),
        ({"readinessProbe": PROBE}, "readinessProbe: the sandbox ignores it: the container is ready"),
        ({"lifecycle": {"preStop": PROBE}}, "lifecycle: the sandbox ignores it: no hooks run"),
        (
            {"securityContext": {"privileged": True}},
            "securityContext: the sandbox ignores it: containers run",
        ),
        ({"resources": {"limits": {"ephemeral-storage": "1"}}}, "resources.limits.ephemeral-storage: the"),
        ({"terminationMessagePolicy": "FallbackToLogsOnError"}, "terminationMessagePolicy: the sandbox"),
        ({"volumeDevices": [{"name": "v", "devicePath": "/v"}]}, "volumeDevices: the sandbox ignores it"),
    ):
        name = message.partition(":")[0].lower()
        answer = await sandbox.create("pods", with_container(pod(name), **fields))
        assert answer.code == 201
        (warning,) = warned(answer)
        assert warning.startswith(f'299 - "spec.containers[0].{message}') and warning.endswith('"')
        assert (name, "Warning", warning[7:-1]) in await events(sandbox)


POD_FIELDS: Object = {
    "securityContext": {"runAsUser": 1000},
    "priorityClassName": "high",
    "serviceAccountName": "reader",
    "runtimeClassName": "nvidia",
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "resourceClaims": [{"name": "gpu"}],
    "ephemeralContainers": [{"name": "debug"}],
    "hostAliases": [{"ip": "127.0.0.1"}],
    "dnsConfig": {"searches": ["x"]},
    "readinessGates": [{"conditionType": "x"}],
    "hostUsers": False,
    "setHostnameAsFQDN": True,
}
HONOURED = {
    "PodSpec": """containers initContainers volumes restartPolicy terminationGracePeriodSeconds nodeName
        activeDeadlineSeconds nodeSelector affinity schedulerName tolerations priority overhead resources
        hostname schedulingGates""",
    "Container": """name command args workingDir ports envFrom env resources restartPolicy volumeMounts
        terminationMessagePath""",
    "Mount": "name mountPath subPath readOnly",
}
# A container has no image, no network and no namespaces of its own, and nobody attaches to it.
WITHOUT_EFFECT = {
    "PodSpec": """dnsPolicy serviceAccount automountServiceAccountToken hostNetwork hostPID hostIPC
        shareProcessNamespace imagePullSecrets subdomain enableServiceLinks preemptionPolicy os""",
    "Container": "image imagePullPolicy resizePolicy stdin stdinOnce tty terminationMessagePolicy",
    "Mount": "recursiveReadOnly mountPropagation",
}


def test_each_pod_field_is_honoured_harmless_or_warned_about() -> None:
    for shape, warned_of in (("PodSpec", OF_POD), ("Container", OF_CONTAINER), ("Mount", OF_MOUNT)):
        known = {
            *HONOURED[shape].split(),
            *WITHOUT_EFFECT[shape].split(),
            *(each.split(".")[0] for each in warned_of),
        }
        assert known == SHAPES[shape].keys(), shape


async def test_ignored_pod_fields_cause_a_warning(sandbox: Api) -> None:
    manifest = pod("p")
    beside = "requiredDuringSchedulingIgnoredDuringExecution"
    manifest["spec"] |= {**POD_FIELDS, "affinity": {"podAffinity": {beside: [{"topologyKey": "host"}]}}}
    answer = await sandbox.create("pods", manifest)
    fields = [warning.split('"')[1].split(":")[0] for warning in warned(answer)]
    names = {*POD_FIELDS, f"affinity.podAffinity.{beside}"}
    assert set(fields) == {f"spec.{name}" for name in names}


async def test_ignored_volume_limits_cause_a_warning(sandbox: Api) -> None:
    volumes = {
        "claim": {"persistentVolumeClaim": {"claimName": "c"}},
        "config": {"configMap": {"name": "c"}},
        "shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        "tmp": {"emptyDir": {"sizeLimit": "2Gi"}},
    }
    mounts = [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in volumes]
    mounts[-1]["subPathExpr"] = "$(POD)"
    manifest = with_container(pod("p"), volumeMounts=mounts)
    manifest["spec"]["volumes"] = [{"name": name, **source} for name, source in volumes.items()]
    answer = await sandbox.create("pods", manifest)
    assert [warning.split('"')[1].split(":")[0] for warning in warned(answer)] == [
        "spec.volumes[3].emptyDir.sizeLimit",
        "spec.containers[0].volumeMounts[0].readOnly",
        "spec.containers[0].volumeMounts[3].subPathExpr",
    ]


async def test_honoured_fields_cause_no_warning(sandbox: Api) -> None:
    side = {"name": "s", "image": "x", "restartPolicy": "Always"}
    manifest = with_container(pod("p"), terminationMessagePath="/tmp/end")
    manifest["spec"]["initContainers"] = [side]
    for answer in (await sandbox.create("pods", manifest), await sandbox.create("batch/v1/jobs", job("j"))):
        assert (answer.code, warned(answer)) == (201, [])
    assert await events(sandbox) == []


async def test_ignored_job_policies_cause_a_warning(sandbox: Api) -> None:
    for field, value in (
        ("podFailurePolicy", {"rules": []}),
        ("backoffLimitPerIndex", 1),
        ("backoffLimitPerIndex", 0),
        ("maxFailedIndexes", 1),
        ("successPolicy", {"rules": []}),
        ("podReplacementPolicy", "Failed"),
    ):
        name = f"{field}-{value}".lower() if isinstance(value, int) else field.lower()
        answer = await sandbox.create("batch/v1/jobs", job(name, **{field: value}))
        (warning,) = warned(answer)
        assert warning.startswith(f'299 - "spec.{field}: the sandbox ignores it: ')
        assert (name, "Warning", warning[7:-1]) in await events(sandbox)


async def test_warnings_about_custom_jobs_name_the_path_of_the_field(sandbox: Api) -> None:
    spec = {
        **with_container(pod("p"), livenessProbe=PROBE)["spec"],
        "readinessGates": [{"conditionType": "x"}],
    }
    template = {"spec": spec}
    torch = torch_job("t", spec={"pytorchReplicaSpecs": {"Master": {"template": template}}})
    roles = {"replicaSpecs": [{"type": "node", "template": template}]}
    t9k, trainer = "batch.tensorstack.dev/v1beta1", "trainer.kubeflow.org/v1alpha1"
    fetched = {"runtimeRef": {"name": "r"}, "initializer": {"dataset": {"storageUri": "hf://a/b"}}}
    probed = ("readinessGates", "containers[0].livenessProbe")
    for plural, manifest, at, fields in (
        ("kubeflow.org/v1/pytorchjobs", torch, "spec.pytorchReplicaSpecs.Master.template.spec.", probed),
        (f"{t9k}/pytorchtrainingjobs", thing("PyTorchTrainingJob", "t", t9k, spec=roles),
         "spec.replicaSpecs[0].template.spec.", probed),
        (f"{trainer}/trainjobs", thing("TrainJob", "t", trainer, spec=fetched), "spec.", ("initializer",)),
    ):  # fmt: skip
        answer = await sandbox.create(plural, manifest)
        wanted = [f'299 - "{at}{field}' for field in fields]
        assert [warning.split(": ")[0] for warning in warned(answer)] == wanted


async def test_a_dry_run_warns_and_writes_no_event(sandbox: Api) -> None:
    answer = await sandbox.create("pods", with_container(pod("p"), livenessProbe=PROBE), dryRun="All")
    assert len(warned(answer)) == 1
    assert await events(sandbox) == []


async def test_pods_with_a_controller_cause_no_further_events(sandbox: Api) -> None:
    made = await sandbox.made("batch/v1/jobs", job("j"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"]}
    manifest = with_container(pod("p", ownerReferences=[{**owner, "controller": True}]), livenessProbe=PROBE)
    await sandbox.made("pods", manifest)
    assert await events(sandbox) == []


async def test_a_second_object_of_the_same_name_causes_a_warning_too(sandbox: Api) -> None:
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


def test_warnings_about_one_object_are_limited() -> None:
    containers = [{"name": f"c{number}", "livenessProbe": PROBE} for number in range(100)]
    spec = {"x" * 500: {"containers": containers[:1]}, "template": {"containers": containers}}
    warnings = warnings_of("thing", {"spec": spec})
    assert (len(warnings), max(map(len, warnings))) == (MAX_WARNINGS, MAX_WARNING_LENGTH)


def test_objects_of_any_shape_can_be_checked() -> None:
    specs: tuple[Any, ...] = (None, 5, [], {"containers": 5}, {"containers": [5, {"volumeMounts": 5}]})
    for spec in specs:
        for key in ("jobs.batch", "pods", "thing"):
            assert warnings_of(key, {"spec": spec}) == []


async def test_probes_with_wrong_values_are_refused(sandbox: Api) -> None:
    for fields, field in (
        ({"readinessProbe": {"httpGet": {"path": "/"}}}, "readinessProbe.httpGet.port"),
        ({"readinessProbe": {**PROBE, "periodSeconds": -1}}, "readinessProbe.periodSeconds"),
    ):
        answer = await sandbox.create("pods", with_container(pod("p"), **fields))
        assert (answer.code, answer.fields) == (422, [f"spec.containers[0].{field}"])


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


async def test_a_node_with_containers_causes_no_event(sandbox: Api) -> None:
    node = thing("Node", "n", spec={"containers": [{"livenessProbe": PROBE}]})
    assert (await sandbox.call("POST", "/api/v1/nodes", node)).code == 201
    assert await events(sandbox) == []


T9K_JOBS = "batch.tensorstack.dev/v1beta1/pytorchtrainingjobs"


def elastic(**policy: Any) -> Object:
    job = torch_job("t")
    job["spec"]["elasticPolicy"] = policy
    return job


def t9k_job(**torchrun: Any) -> Object:
    role = {"type": "node", "template": {"spec": pod("p")["spec"]}}
    spec = {"replicaSpecs": [role], "torchrunConfig": {"enabled": True, **torchrun}}
    kind = {"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "PyTorchTrainingJob"}
    return {**kind, "metadata": {"name": "t"}, "spec": spec}


def pod_with(**container: Any) -> Object:
    made = pod("p")
    made["spec"]["containers"][0] |= container
    return made


async def test_the_c10d_rendezvous_is_refused_with_advice(sandbox: Api) -> None:
    for plural, obj, field in (
        (TORCH_JOBS, elastic(rdzvBackend="c10d"), "spec.elasticPolicy.rdzvBackend"),
        (TORCH_JOBS, elastic(rdzvBackend=" C10d"), "spec.elasticPolicy.rdzvBackend"),
        (
            "pods",
            pod_with(env=[{"name": "A", "value": "b"}, {"name": "PET_RDZV_BACKEND", "value": "c10d"}]),
            "spec.containers[0].env[1].value",
        ),
        ("pods", pod_with(command=["torchrun", "--rdzv-backend", "c10d"]), "spec.containers[0].command"),
        (T9K_JOBS, t9k_job(extraOptions=["--rdzv-backend", "c10d"]), "spec.torchrunConfig.extraOptions"),
        ("pods", pod_with(args=["-c", "torchrun --rdzv_backend=c10d x.py"]), "spec.containers[0].args"),
    ):
        for query in ({}, {"dryRun": "All"}):
            answer = await sandbox.create(plural, obj, **query)
            assert (answer.code, answer.reason, answer.fields) == (422, "Invalid", [field])
            assert f"Forbidden: {REFUSED}" in answer.body["message"]


@pytest.mark.parametrize(
    ("plural", "obj"),
    [
        (TORCH_JOBS, elastic(minReplicas=1, maxReplicas=2)),
        (TORCH_JOBS, elastic(rdzvBackend="etcd-v2")),
        ("pods", pod_with(command=["torchrun", "--rdzv-backend", "static", "--tag", "c10d"])),
        ("pods", pod_with(command=["torchrun", "--standalone"])),
        (T9K_JOBS, t9k_job(rdzvBackend="c10d", extraOptions=["--tee=3"])),
    ],
)
async def test_other_rendezvous_back_ends_are_accepted(sandbox: Api, plural: str, obj: Object) -> None:
    assert (await sandbox.create(plural, obj)).code == 201


async def test_a_change_may_not_add_the_c10d_rendezvous(sandbox: Api) -> None:
    await sandbox.made(TORCH_JOBS, torch_job("t"))
    patch = {"spec": {"elasticPolicy": {"rdzvBackend": "c10d"}}}
    answer = await sandbox.patch(TORCH_JOBS, "t", patch)
    assert (answer.code, answer.fields) == (422, ["spec.elasticPolicy.rdzvBackend"])


async def test_allowed_c10d_jobs_can_be_changed_and_deleted_later(store: Store, tmp_path: Path) -> None:
    for allows in (True, False):
        server = Server(store, token=TOKEN, pods_root=tmp_path, allows_open_rendezvous=allows)
        port = await server.start()
        async with Api(f"http://127.0.0.1:{port}", TOKEN, None, is_real=False) as api:
            if allows:
                await api.made(TORCH_JOBS, elastic(rdzvBackend="c10d"))
            else:
                suspend = {"spec": {"runPolicy": {"suspend": True}}}
                assert (await api.patch(TORCH_JOBS, "t", suspend)).code == 200
                assert (await api.delete(TORCH_JOBS, "t")).code == 200
        await server.stop()
