"""Objects and their pods as each operator makes them: one file for each kind and situation."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import yaml

from k8s.kinds import KINDS
from k8s.kinds.base import DeclaredJob, JobKind
from k8s.models import Pod, Reader
from tests import FIXTURES
from tests.support.objects import Object, listed

SITUATIONS = sorted(path.stem for path in (FIXTURES / "objects").glob("*.yaml"))
"""Names of the files; in each the first object is the one that a user made."""


class _Loader(yaml.SafeLoader):
    """Reads times as text, as they come in JSON."""


_Loader.yaml_implicit_resolvers = {
    char: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for char, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@cache
def _read(situation: str) -> str:
    text = (FIXTURES / "objects" / f"{situation}.yaml").read_text()
    return json.dumps(list(yaml.load_all(text, _Loader)))


def objects(situation: str) -> list[Object]:
    found: list[Any] = json.loads(_read(situation))
    return found


def kind_named(obj: Object) -> JobKind | None:
    """Return the kind of an object, if it is a job of a kind we know."""
    for kind in KINDS:
        if (kind.resource.kind, kind.resource.api_version) == (obj["kind"], obj["apiVersion"]):
            return kind
    return None


def jobs_in(situation: str) -> list[DeclaredJob]:
    """Return the declared jobs of a file, the user's first."""
    return [kind.parse(obj) for obj in objects(situation) if (kind := kind_named(obj)) is not None]


def pods_in(situation: str) -> list[Pod]:
    return read_pods(*(obj for obj in objects(situation) if obj["kind"] == "Pod"))


def read_pods(*pods: Object) -> list[Pod]:
    return Reader[Pod](Pod).read_list(listed(*pods))[1]


def a_pod(name: str, labels: dict[str, str], /, **owner: str) -> Pod:
    references = [{"controller": True, **owner}] if owner else []
    return read_pods({"metadata": {"name": name, "labels": labels, "ownerReferences": references}})[0]
