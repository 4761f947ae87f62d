"""Discovery of kinds on servers that answer in different ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.client import Client
from k8s.cluster.discovery import RestMapper, ServedKinds, choose, discover
from k8s.kinds import KINDS
from k8s.models.resources import Resource
from k8s.text.errors import KubeError, ServerFailed, Unauthorized, Unreachable
from tests.scripted.server import Answer, Drop, Reply, ScriptedCluster, refusal

VERBS = ["create", "delete", "get", "list", "watch"]


class Named:
    """A kind of which only the resource matters."""

    def __init__(self, api_version: str, plural: str) -> None:
        group, _, version = api_version.rpartition("/")
        self.resource = Resource(group, version, plural, plural.title())


OLD, NEW, TORCH = (
    Named("lab.io/v1", "mpijobs"),
    Named("lab.io/v2", "mpijobs"),
    Named("lab.io/v1", "torchjobs"),
)
BATCH, OTHER = Named("batch/v1", "jobs"), Named("volcano.sh/v1", "jobs")
EVERY: Any = (NEW, OLD, TORCH, BATCH, OTHER)


def served(preferred: Sequence[str] = (), **plurals: Sequence[str] | None) -> ServedKinds:
    """Return the resources of groups, `lab_v1=["mpijobs"]`; None for a group that does not answer."""
    names = {"lab_v1": "lab.io/v1", "lab_v2": "lab.io/v2", "batch": "batch/v1", "volcano": "volcano.sh/v1"}
    found = {names[key]: None if each is None else frozenset(each) for key, each in plurals.items()}
    return ServedKinds(found, frozenset(preferred))


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (served(), []),
        (served(batch=["jobs", "cronjobs"]), [BATCH]),
        (served(volcano=["jobs"]), [OTHER]),
        (served(lab_v1=["torchjobs"], lab_v2=["mpijobs"]), [NEW, TORCH]),
        (served(lab_v1=["mpijobs", "torchjobs"], lab_v2=["mpijobs"]), [NEW, TORCH]),
        (served(["lab.io/v1"], lab_v1=["mpijobs", "torchjobs"], lab_v2=["mpijobs"]), [OLD, TORCH]),
        (served(["lab.io/v1"], lab_v1=["torchjobs"], lab_v2=["mpijobs"]), [NEW, TORCH]),
        (served(lab_v1=None, lab_v2=["mpijobs"]), [NEW, TORCH]),
        (served(lab_v1=None, lab_v2=None, batch=["jobs"]), [NEW, OLD, TORCH, BATCH]),
    ],
    ids=[
        "nothing",
        "one",
        "the same plural of another group",
        "each in its version",
        "ours first",
        "the server's preferred",
        "preferred but not there",
        "a version that would not say",
        "a group that would not say",
    ],
)
def test_one_version_is_chosen_when_a_kind_is_served_in_several(
    there: ServedKinds, chosen: list[Named]
) -> None:
    assert list(choose(EVERY, there)) == chosen


def test_versions_with_different_storage_are_mirrored_separately() -> None:
    places = [("lab.io/v2", "mpijobs"), ("lab.io/v1", "mpijobs")]
    plurals = {version: frozenset({plural}) for version, plural in places}
    names = ["/".join(place) for place in places]
    same, apart = dict.fromkeys(names, "a"), dict(zip(names, "ab", strict=True))
    assert choose((NEW, OLD), ServedKinds(plurals, storages=same)) == (NEW,)
    assert choose((NEW, OLD), ServedKinds(plurals, storages=apart)) == (NEW, OLD)


@given(
    st.dictionaries(
        st.sampled_from(sorted({kind.resource.api_version for kind in KINDS})),
        st.none() | st.frozensets(st.sampled_from(sorted({kind.resource.plural for kind in KINDS}))),
    ),
    st.frozensets(st.sampled_from(sorted({kind.resource.api_version for kind in KINDS}))),
)
def test_no_job_is_mirrored_twice_when_discovery_lists_the_served_kinds(
    plurals: dict[str, frozenset[str] | None], preferred: frozenset[str]
) -> None:
    chosen = choose(KINDS, ServedKinds(plurals, preferred))
    known = [kind for kind in chosen if plurals[kind.resource.api_version] is not None]
    places = [(kind.resource.group, kind.resource.plural) for kind in known]
    assert len(set(places)) == len(places)
    for kind in KINDS:
        place = (kind.resource.group, kind.resource.plural)
        is_there = kind.resource.plural in (plurals.get(kind.resource.api_version) or ())
        assert not is_there or place in places


def say_groups(cluster: ScriptedCluster, **groups: Sequence[str]) -> None:
    """Serve `/apis` as a server without aggregated discovery does: `lab_io=["v2", "v1"]`, preferred first."""
    found = []
    for key, versions in groups.items():
        name = key.replace("_", ".")
        entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
        found.append({"name": name, "versions": entries, "preferredVersion": entries[0]})
    cluster.say("/apis", Answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": found}))


def holds(*plurals: str) -> Answer:
    """Answer with the resources of one version of a group, subresources included."""
    listed = [{"name": name, "kind": name.title(), "namespaced": True, "verbs": VERBS} for name in plurals]
    listed += [{"name": f"{name}/status", "kind": name.title(), "verbs": ["get"]} for name in plurals]
    return Answer({"kind": "APIResourceList", "resources": listed})


async def test_discovery_requests_resources_only_from_known_api_groups(
    cluster: ScriptedCluster, client: Client
) -> None:
    say_groups(cluster, apps=["v1"], lab_io=["v2", "v1"], batch=["v1", "v1beta1"], metrics_k8s_io=["v1"])
    cluster.say("/apis/lab.io/v1", holds("mpijobs", "torchjobs"))
    cluster.say("/apis/lab.io/v2", holds("mpijobs"))
    cluster.say("/apis/batch/v1", holds("jobs"))
    assert await discover(client, EVERY) == (NEW, TORCH, BATCH)
    paths = [asked.path for asked in cluster.requests]
    assert paths[0] == "/apis"
    assert sorted(paths[1:]) == ["/apis/batch/v1", "/apis/lab.io/v1", "/apis/lab.io/v2"]


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        (refusal(503, "the server is currently unable to handle the request"), [NEW, OLD, TORCH, BATCH]),
        (refusal(403), [NEW, OLD, TORCH, BATCH]),
        (Answer(b"<html>"), [NEW, OLD, TORCH, BATCH]),
        (Answer({"resources": {"name": 5}}), [NEW, OLD, TORCH, BATCH]),
        (Answer({"resources": None}), [BATCH]),
        (refusal(404), [BATCH]),
    ],
    ids=["503", "403", "no JSON", "nonsense", "nothing", "gone meanwhile"],
)
async def test_a_broken_api_group_does_not_hide_other_groups(
    reply: Reply, chosen: list[Named], cluster: ScriptedCluster, client: Client
) -> None:
    say_groups(cluster, lab_io=["v1", "v2"], batch=["v1"])
    cluster.say("/apis/lab.io/v1", reply)
    cluster.say("/apis/lab.io/v2", reply)
    cluster.say("/apis/batch/v1", holds("jobs"))
    assert list(await discover(client, EVERY)) == chosen


async def test_discovery_fails_when_the_api_groups_cannot_be_listed() -> None:
    cases: list[tuple[Reply, type[KubeError]]] = [
        (refusal(403), KubeError),
        (refusal(404), KubeError),
        (refusal(500), ServerFailed),
        (refusal(401), Unauthorized),
        (Answer({}), ServerFailed),
        (Answer({"groups": 5}), ServerFailed),
        (Answer([]), ServerFailed),
        (Drop(), Unreachable),
    ]
    for reply, kind in cases:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            cluster.say("/apis", reply)
            with pytest.raises(kind):
                await discover(client, EVERY)


async def test_a_cluster_lost_during_discovery_raises_unreachable(
    cluster: ScriptedCluster, client: Client
) -> None:
    say_groups(cluster, lab_io=["v1"], batch=["v1"])
    cluster.say("/apis/lab.io/v1", Drop())
    cluster.say("/apis/batch/v1", holds("jobs"))
    with pytest.raises(Unreachable):
        await discover(client, EVERY)


async def test_the_rest_mapper_finds_a_kind_with_one_cached_request_per_group_version(
    cluster: ScriptedCluster, client: Client
) -> None:
    cluster.say("/apis/lab.io/v1", holds("mpijobs", "torchjobs"))
    cluster.say("/api/v1", Answer({"resources": [{"name": "nodes", "kind": "Node", "verbs": VERBS}]}))
    mapper = RestMapper(client)
    found = [await mapper.resource_of("lab.io/v1", kind) for kind in ("Mpijobs", "Torchjobs", "Cats")]
    assert found == [
        Resource("lab.io", "v1", "mpijobs", "Mpijobs"),
        Resource("lab.io", "v1", "torchjobs", "Torchjobs"),
        None,
    ]
    assert await mapper.resource_of("v1", "Node") == Resource("", "v1", "nodes", "Node", False)
    assert await mapper.resource_of("gone.io/v1", "Cat") is None
    assert len(cluster.asked("/apis/lab.io/v1")) == 1
    mapper.reset()
    assert await mapper.resource_of("lab.io/v1", "Mpijobs") is not None
    assert len(cluster.asked("/apis/lab.io/v1")) == 2
