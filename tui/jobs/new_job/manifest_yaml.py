"""Parses a manifest from YAML that people write, and says where it is wrong."""

from __future__ import annotations

import json

import yaml

from k8s.kinds import KINDS, Manifest


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
        json.dumps(found, allow_nan=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context or 'not valid YAML'}.") from error
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"Not a valid manifest: {error}.") from error
    return found


def _checked(found: object) -> Manifest:
    if not isinstance(found, dict):
        raise ValueError("A manifest must be a mapping, e.g. kind: Job.")
    meta = found.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ValueError("metadata.name is required.")
    return found
