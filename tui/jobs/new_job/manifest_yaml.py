"""Parses a manifest from YAML that people write, and says where it is wrong."""

from __future__ import annotations

import json
from typing import Any

import yaml

from k8s.kinds import KINDS, Manifest

LARGEST_BYTES = 3 * 2**20
"""What an API server takes at most."""


class Loader(yaml.SafeLoader):
    """Leaves dates as text, as Kubernetes does, and refuses aliases that make a small file a huge object."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Make the values of a document.

        Raises:
            ConstructorError: They are larger than any cluster takes.
        """
        if _size_of(node, {}) > LARGEST_BYTES:
            words = "with its aliases written out it is larger than 3 MiB, the most that a cluster takes"
            raise yaml.constructor.ConstructorError(None, None, words, node.start_mark)
        return super().construct_document(node)


Loader.yaml_implicit_resolvers = {
    char: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for char, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _size_of(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Return roughly the bytes of a node with every alias written out; of one within itself, once.

    Args:
        node: The node.
        sizes: Those of which it is known, by identity.
    """
    if node in sizes:
        return sizes[node]
    sizes[node] = 0
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    else:
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
    own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
    sizes[node] = found = 1 + own + sum(_size_of(part, sizes) for part in parts)
    return found


def read_manifest(text: str) -> Manifest:
    """Parse one object.

    Raises:
        ValueError: It is not a manifest; the message says what is wrong and where.
    """
    found = _objects(text)
    if len(found) > 1:
        raise ValueError(f"There are {len(found)} objects; a manifest is one.")
    return _checked(found[0] if found else None)


def read_job(text: str) -> Manifest:
    """Parse objects and return the first that is a job.

    Raises:
        ValueError: There is none; the message says what is wrong and where.
    """
    known = {(kind.resource.kind, kind.resource.api_version) for kind in KINDS}
    found = _objects(text)
    for obj in found:
        if isinstance(obj, dict) and (obj.get("kind"), obj.get("apiVersion")) in known:
            return _checked(obj)
    kinds = ", ".join(str(obj.get("kind")) for obj in found if isinstance(obj, dict))
    raise ValueError(f"There is no job in it{f', but {kinds}' if kinds else ''}.")


def _objects(text: str) -> list[object]:
    try:
        found = [each for each in yaml.load_all(text, Loader) if each is not None]
        # Written and read once more, what aliases share is each a thing of its own.
        unshared: list[object] = json.loads(json.dumps(found, allow_nan=False))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context or 'not valid YAML'}.") from error
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"Not a valid manifest: {error}.") from error
    return unshared


def _checked(found: object) -> Manifest:
    if not isinstance(found, dict):
        raise ValueError("A manifest must be a mapping, e.g. kind: Job.")
    meta = found.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ValueError("metadata.name is required.")
    return found
