"""Ignored fields cause a warning; objects that cannot run here, also with an open rendezvous, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.sandbox.api.validation import MAX_WARNING_LENGTH, MAX_WARNINGS, REFUSED, warnings_of
from tests.k8s.sandbox.calls import TORCH_JOBS, Answer, Api, Object, job, pod, thing, torch_job

PROBE = {"exec": {"command": ["true"]}}


def with_container(obj: Object, **fields: Any) -> Object:
    obj["spec"]["containers"][0] |= fields
    return obj


def warned(answer: Answer) -> list[str]:
    return [warning for name, warning in answer.headers.items() if name == "Warning"]


async def test_ignored_fields_cause_a_warning_that_names_them(sandbox: Api) -> None:
    fields: Object = {
        "livenessProbe": PROBE,
        "readinessProbe": PROBE,
        "lifecycle": {"preStop": PROBE},
        "securityContext": {"privileged": True},
        "resources": {"limits": {"ephemeral-storage": "1"}},
    }
    manifest = with_container(pod("p"), **fields)
    beside = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}
    manifest["spec"] |= {
        "securityContext": {},
        "hostAliases": [{"ip": "::1"}],
        "affinity": {"podAffinity": beside},
    }
    answer = await sandbox.create("pods", manifest)
    named = [warning.split('"')[1].split(": ") for warning in warned(answer)]
    assert [path for path, *_ in named] == [
        *(f"spec.containers[0].{field}" for field in fields if field != "resources"),
        "spec.containers[0].resources.limits.ephemeral-storage",
        # The server's own defaults.
        "spec.containers[0].resources.requests.ephemeral-storage",
        "spec.hostAliases",
        "spec.affinity.podAffinity",
    ]
    assert named[0][1:] == ["the sandbox ignores it", "a container that hangs is not restarted"]


async def test_honoured_fields_cause_no_warning(sandbox: Api) -> None:
    manifest = with_container(pod("p"), terminationMessagePath="/tmp/end")
    for answer in (await sandbox.create("pods", manifest), await sandbox.create("batch/v1/jobs", job("j"))):
        assert (answer.code, warned(answer)) == (201, [])


async def test_a_sidecar_is_refused(sandbox: Api) -> None:
    manifest = pod("p")
    manifest["spec"]["initContainers"] = [{"name": "s", "image": "x", "restartPolicy": "Always"}]
    answer = await sandbox.create("pods", manifest)
    assert (answer.code, answer.fields) == (422, ["spec.initContainers[0].restartPolicy"])


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
    warnings = warnings_of({"spec": spec})
    assert (len(warnings), max(map(len, warnings))) == (MAX_WARNINGS, MAX_WARNING_LENGTH)
    odds: tuple[Any, ...] = (None, 5, [], {"containers": 5}, {"containers": [5, {"volumeMounts": 5}]})
    assert [warnings_of({"spec": odd}) for odd in odds] == [[]] * len(odds)


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


async def test_objects_are_changed_by_patches_alone(sandbox: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await sandbox.made("apps/v1/deployments", thing("Deployment", "d", "apps/v1", spec=spec))
    path = sandbox.path("apps/v1/deployments", "d")
    replaced = await sandbox.call("PUT", path, made)
    assert (replaced.code, replaced.reason) == (405, "MethodNotAllowed")
    for method in ("GET", "PUT", "PATCH"):
        assert (await sandbox.call(method, f"{path}/scale", {"spec": {"replicas": 2}})).code == 404
    patched = await sandbox.patch("apps/v1/deployments", "d", {"spec": {"replicas": 2}})
    assert patched.body["spec"]["replicas"] == 2


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
