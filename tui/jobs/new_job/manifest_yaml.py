"""Parses a manifest from YAML that people write, and says where it is wrong."""

from __future__ import annotations

import json

import yaml

from k8s.kinds import Manifest


class Loader(yaml.SafeLoader):
    """Leaves dates as text, as Kubernetes does."""


Loader.yaml_implicit_resolvers = {
    char: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for char, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_manifest(text: str) -> Manifest:
    """Parse one object.

    Raises:
        ValueError: It is not a manifest; the message says what is wrong and where.
    """
    try:
        found = yaml.load(text, Loader)
        json.dumps(found, allow_nan=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context or 'not valid YAML'}.") from error
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"Not a valid manifest: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError("A manifest must be a mapping, e.g. kind: Job.")
    meta = found.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ValueError("metadata.name is required.")
    return found
