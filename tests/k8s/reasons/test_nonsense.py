"""Malformed objects: a diagnosis always has an answer or one of our errors."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.reasons.gather import answer_why
from k8s.snapshot import ClusterSnapshot
from k8s.status import Status
from k8s.text.errors import KubeError
from tests.scripted.server import Answer as Say
from tests.scripted.server import ScriptedCluster
from tests.support.evidence import held, instance, job_of
from tests.support.objects import Object, node, pod_of, pytorch_job

CORE = "/api/v1/namespaces/default"
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"

_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "bert",
            "a",
            "8",
            "-1",
            "True",
            "False",
            "2026-11-21T11:00:00Z",
            "0001-01-01T00:00:00+23:00",
            "default",
        ]
    )
)
_KEYS = [
    *("metadata", "name", "labels", "spec", "status", "items", "continue", "containers", "resources"),
    *("requests", "nvidia.com/gpu", "nodeName", "affinity", "nodeAffinity", "nodeSelectorTerms", "key"),
    *("operator", "values", "taints", "effect", "conditions", "type", "reason", "state", "waiting"),
    *("exitCode", "finishedAt", "hard", "used", "template", "suspend", "replicas", "volumes"),
]
_nonsense = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=30,
)


def _mutated(obj: Any, draw: st.DataObject) -> Any:
    """Return an object of which some parts are something else."""
    if draw.draw(st.integers(0, 11)) == 0:
        return draw.draw(_nonsense)
    if isinstance(obj, dict):
        return {key: _mutated(value, draw) for key, value in obj.items()}
    if isinstance(obj, list):
        return [_mutated(value, draw) for value in obj]
    return obj


def _body(draw: st.DataObject, obj: Object) -> Say:
    kind = draw.draw(st.integers(0, 5))
    found = draw.draw(_nonsense) if kind == 0 else _mutated(obj, draw)
    if kind == 1:
        return Say(draw.draw(st.binary(max_size=40)))
    return Say(json.dumps(found).encode())


@pytest.mark.slow
@settings(max_examples=40)
@given(draw=st.data())
def test_a_diagnosis_of_malformed_objects_returns_an_answer_or_a_kube_error(draw: st.DataObject) -> None:
    asyncio.run(_ask_for_nonsense(draw))


async def _ask_for_nonsense(draw: st.DataObject) -> None:
    own = pytorch_job("bert", labels={"kueue.x-k8s.io/queue-name": "q"}) | {"status": {"conditions": []}}
    there = pod_of(own, "master-0", phase="Pending", conditions=[])
    there["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "bert-master-0"},
        "reason": "FailedMount",
        "message": "m",
        "lastTimestamp": "2026-11-21T11:00:00Z",
    }
    taint = {"key": "k", "effect": "NoSchedule"}
    quota = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
    served: dict[str, Object] = {
        OWN: own,
        "/api/v1/nodes": {"items": [node("a", 8), node("b", 4, taints=[taint])]},
        "/api/v1/pods": {"items": [there]},
        f"{CORE}/pods": {"items": [there]},
        f"{CORE}/events": {"items": [event]},
        f"{CORE}/resourcequotas": {"items": [quota]},
        f"{CORE}/limitranges": {"items": [{"metadata": {"name": "l"}, "spec": {"limits": []}}]},
        f"{CORE}/persistentvolumeclaims/c": {"metadata": {"name": "c"}, "status": {"phase": "Pending"}},
        WORKLOADS: {"items": [{"metadata": {"name": "w"}, "status": {"conditions": []}}]},
    }
    status = draw.draw(st.sampled_from(list(Status)))
    with_node = draw.draw(st.sampled_from(["", "a"]))
    instances = [instance(status=status, node=with_node), instance("worker-0", has_pod=False)]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, obj in served.items():
            cluster.say(path, _body(draw, obj))
        try:
            job = job_of(instances, status)
            snapshot = ClusterSnapshot(jobs=(job,), nodes=(held("a", 8, gpt=4),), is_synced=True)
            answer = await answer_why(client, job, snapshot)
        except KubeError:
            return
        assert answer.sentence and answer.as_text()
