"""Manifests as YAML: of files and of editors, with the place of an error; and owned objects to read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from msgspec.structs import replace

from k8s.jobs.owned_objects import OwnedObject, is_uploaded, owned_objects_of, with_files
from k8s.jobs.upload import upload_mount
from k8s.kinds import KINDS, CreatableKind, Manifest
from k8s.kinds.job_spec import JobFiles, JobSpec
from k8s.models.resources import CLAIMS, CONFIG_MAPS, DEPLOYMENTS, SECRETS, SERVICES, Resource
from k8s.text.errors import KubeError
from k8s.text.home import expand_home, read_named_file
from k8s.text.redact import MARK, MASK, masked
from k8s.text.yaml_writer import to_yaml
from tui.text.format import memory

# API servers refuse larger objects.
LARGEST_BYTES = 3 * 2**20
_NO_TEXTS = tuple(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float"))
_AS_WRITTEN = re.compile(r"true|false|-?(0|[1-9]\d*)(\.0|\.\d*[1-9])?")


class Loader(yaml.SafeLoader):
    """YAML loader that leaves dates as text, as Kubernetes does; refuses repeated keys and huge aliases."""

    def compose_document(self) -> yaml.Node | None:
        """Parse a document.

        Raises:
            ComposerError: The document is nested too deeply.
        """
        try:
            return super().compose_document()
        except RecursionError as error:
            raise yaml.composer.ComposerError(None, None, "it is nested too deeply", None) from error

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Build a value.

        Raises:
            ConstructorError: It is not what its tag says.
        """
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, ValueError) as error:
            problem = f"this is not a value of the type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_document(self, node: yaml.Node) -> Any:
        """Build the values of a document.

        Raises:
            ConstructorError: A key is repeated, the value of a variable is not read as it is written, or
                the values are larger than any cluster accepts.
        """
        if _size_of(node, {}) > LARGEST_BYTES:
            problem = "with its aliases expanded it is larger than 3 MiB, the most that a cluster accepts"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        if isinstance(node, yaml.MappingNode):
            _check_env(node)  # of a template
        return super().construct_document(node)


Loader.yaml_implicit_resolvers = {
    char: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for char, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check_env(parent: yaml.MappingNode) -> None:
    """Refuse values of `env` that YAML 1.1 does not read as text; a template's may be plain numbers."""
    for _, env in (pair for pair in parent.value if pair[0].value == "env"):
        is_list = isinstance(env, yaml.SequenceNode)
        items = [item.value for item in env.value if isinstance(item, yaml.MappingNode)] if is_list else ()
        named = [pair for item in items for pair in item if pair[0].value == "value"]
        for _, value in named if is_list else env.value if isinstance(env, yaml.MappingNode) else ():
            is_same = not is_list and _AS_WRITTEN.fullmatch(str(value.value))
            if value.tag in _NO_TEXTS and not is_same:
                words = f'the value of a variable must be a text: quote it, as "{value.value}"'
                raise yaml.constructor.ConstructorError(None, None, words, value.start_mark)


def _size_of(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    # Approximate bytes with every alias expanded; a node within itself counts once.
    if node in sizes:
        return sizes[node]
    sizes[node] = 0
    if isinstance(node, yaml.MappingNode):
        if any(isinstance(each, yaml.SequenceNode) for _, each in node.value):
            _check_env(node)
        parts = [part for pair in node.value for part in pair]
        names = set[str]()
        for name in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if name.value in names:
                words = f"{name.value} is given twice"
                raise yaml.constructor.ConstructorError(None, None, words, name.start_mark)
            names.add(name.value)
    else:
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
    own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
    sizes[node] = found = 1 + own + sum(_size_of(part, sizes) for part in parts)
    return found


def read_manifest(text: str) -> Manifest:
    """Parse one object.

    Raises:
        ValueError: The text is not a manifest; the message says what is wrong and where.
    """
    found = _objects(text)
    if len(found) > 1:
        raise ValueError(f"There are {len(found)} objects; a manifest is one.")
    return _checked(found[0] if found else None)


def check_kind(manifest: Manifest, resource: Resource) -> None:
    """Check that an edited manifest has the kind of its screen; another has another path on the server.

    Raises:
        ValueError: It has another kind or version.
    """
    if (manifest.get("kind"), manifest.get("apiVersion")) != (resource.kind, resource.api_version):
        raise ValueError(f"kind and apiVersion must stay {resource.kind}, {resource.api_version}.")


def read_job(text: str) -> tuple[Manifest, list[str]]:
    """Return the first job among the objects of a text, and the titles of the other objects.

    Raises:
        ValueError: The text has no job; the message says what is wrong and where.
    """
    known = {(kind.resource.kind, kind.resource.api_version) for kind in KINDS}
    found = _objects(text)
    objects = [obj for obj in found if isinstance(obj, dict)]
    job = next((obj for obj in objects if (obj.get("kind"), obj.get("apiVersion")) in known), None)
    if job is not None:
        return _checked(job), [_title(obj) for obj in objects if obj is not job]
    kinds = ", ".join(str(obj.get("kind")) for obj in objects)
    raise ValueError(f"There is no job in it{f', but {kinds}' if kinds else ''}.")


def _title(obj: Manifest) -> str:
    meta = obj.get("metadata")
    return f"{obj.get('kind')} {meta.get('name', '') if isinstance(meta, dict) else ''}".rstrip()


def items_of(obj: Any) -> list[Any]:
    """Return the items of a List, as `kubectl get -o json` prints several objects; else the object."""
    is_list = isinstance(obj, dict) and (obj.get("apiVersion"), obj.get("kind")) == ("v1", "List")
    return obj["items"] if is_list and isinstance(obj.get("items"), list) else [obj]


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
    return [each for obj in unshared for each in items_of(obj)]


def _checked(found: object) -> Manifest:
    if not isinstance(found, dict):
        raise ValueError("A manifest must be a mapping, e.g. kind: Job.")
    meta = found.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ValueError("metadata.name is required.")
    return found


KNOWN: tuple[Resource, ...] = (
    *(kind.resource for kind in KINDS),
    CLAIMS,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    DEPLOYMENTS,
)


class ManifestObject(NamedTuple):
    """One object to create."""

    resource: Resource
    manifest: Manifest


class BadManifest(KubeError):
    """A file holds no manifest of a known kind."""


def read_manifests(path: str) -> list[ManifestObject]:
    """Parse all objects of a file; `-` is standard input.

    Raises:
        BadManifest: The file cannot be read, or an object is invalid or of an unknown kind.
    """
    where = "standard input" if path == "-" else path
    found: list[ManifestObject] = []
    try:
        objects = _objects(_read(path, where))
    except ValueError as error:
        raise BadManifest(f"{where} is not YAML.", str(error)) from error
    for number, obj in enumerate(objects, 1):
        each = _as_submitted(obj, f"{where}, object {number}")
        _check_is_new(each, found, f"{where}, object {number}")
        found.append(each)
    if not found:
        raise BadManifest(f"There is no manifest in {where}.")
    return found


def _check_is_new(each: ManifestObject, before: Sequence[ManifestObject], where: str) -> None:
    """Reject a second object of the same kind and name: the server would reject it half-way."""
    meta = each.manifest["metadata"]
    for resource, manifest in before:
        other = manifest["metadata"]
        same = all(meta.get(key) == other.get(key) for key in ("name", "namespace"))
        if resource == each.resource and meta.get("name") and same:
            raise BadManifest(f"{where}, is a second {resource.kind} {meta['name']}.")


def _read(path: str, where: str) -> str:
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        elif path.startswith("/dev/fd/"):  # the shell's <(command): a pipe that somebody writes
            with open(path, "rb") as pipe:
                raw = pipe.read(LARGEST_BYTES + 1)
        else:
            raw = read_named_file(expand_home(path), LARGEST_BYTES)
    except OSError as error:
        raise BadManifest(f"Could not read {where}.", f"{error.strerror or error}.") from error
    if len(raw) > LARGEST_BYTES:
        raise BadManifest(
            f"Could not read {where}.", "It is larger than 3 MiB, the most that a cluster takes."
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadManifest(f"Could not read {where}.", f"It is not UTF-8 at byte {error.start}.") from error


def _as_submitted(obj: object, where: str) -> ManifestObject:
    if not isinstance(obj, dict):
        raise BadManifest(f"{where}, is not a manifest.", "It must be an object (a mapping).")
    api_version, kind, meta = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    for name, value in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            raise BadManifest(f"{where}, has no {name}.", hint="Add it, e.g. kind: Job.")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise BadManifest(f"{where}, has no metadata.name.", hint="Add a name.")
    text = json.dumps(obj, ensure_ascii=False)
    if mark := MARK.search(text):
        words = f"{where}, a {kind}, holds {mark[0]} where a value was hidden."
        raise BadManifest(words, hint="Write the value in its place, or print it again with --show-secrets.")
    if kind == SECRETS.kind and MASK in text:
        raise BadManifest(
            f"{where}, a Secret, holds {MASK} where a value was hidden.", hint="Write the value in its place."
        )
    same = [each for each in KNOWN if each.kind == kind]
    group, _, version = str(api_version).rpartition("/")
    for resource in (each for each in same if each.group == group):
        # Whether there is another version than those known here, the server says.
        exact = next((each for each in same if each.api_version == api_version), None)
        return ManifestObject(exact or replace(resource, version=version), obj)
    names = ", ".join(f"{each.kind} {each.api_version}" for each in same or KNOWN)
    raise BadManifest(f"{where}, is a {kind} {api_version}, which is not supported.", f"Supported: {names}.")


def versions_known(resource: Resource) -> list[str]:
    """Return the known versions of a resource."""
    return [each.api_version for each in KNOWN if (each.kind, each.group) == (resource.kind, resource.group)]


LONGEST_CONTENT = 2_000
TRAINER_FILES: Mapping[str, bytes] = {"trainer": b""}
"""Stands for the packaged trainers: packing them on each key stroke takes too long."""
_OF_THIS_MACHINE = ("sync_source", "config_files")
_WORDS = {"sync_source": "of code", "config_files": "", "trainer": "with the packaged trainers"}

_EMPTIED = re.compile(r'(  "?([^"\s]+)"?:) null')


def documents_beside(kind: CreatableKind, spec: JobSpec, files: JobFiles, unread: str = "") -> str:
    """Return the owned objects of a job as YAML, each after `---`; empty if there are none.

    Args:
        kind: The kind of the job.
        spec: The job.
        files: The local files that were read, and `TRAINER_FILES` for those of a trainer.
        unread: The reason why folder and config files are missing, as a comment; empty if they are not.
    """
    objects = owned_objects_of(kind, with_files(spec, files), files)
    documents = [_document(each, unread * (each.field in _OF_THIS_MACHINE)) for each in objects]
    if is_uploaded(spec, files) and (mount := upload_mount(spec)) is not None:
        size = memory(len(files.code))
        documents.insert(
            0, f"# {size} of code go into volume claim {mount.claim} before the job is created\n"
        )
    return "".join(f"---\n{each}" for each in documents)


def _document(owned: OwnedObject, unread: str) -> str:
    obj = masked(owned.manifest)
    elided = dict(_elided(obj, owned.field, unread))
    emptied = {
        part: {key: None if key in elided else value for key, value in obj[part].items()}
        for part in ("data", "binaryData")
        if obj["kind"] == "ConfigMap" and part in obj
    }
    lines = to_yaml({**obj, **emptied}).splitlines()
    return "".join(f"{_with_comment(line, elided)}\n" for line in lines)


def _elided(obj: Manifest, field: str, unread: str) -> Iterator[tuple[str, str]]:
    if obj["kind"] != "ConfigMap":
        return
    for part, is_encoded in (("data", False), ("binaryData", True)):
        for key, text in (obj.get(part) or {}).items():
            if unread:
                yield key, unread
            elif field == "trainer":
                yield key, f"zipped, {_WORDS[field]}"
            elif is_encoded or len(text) > LONGEST_CONTENT:
                size_bytes = len(text) * 3 // 4 if is_encoded else len(text.encode())
                yield key, f"{memory(size_bytes)} {_WORDS.get(field, '')}".rstrip()


def _with_comment(line: str, elided: Mapping[str, str]) -> str:
    found = _EMPTIED.fullmatch(line)
    return f"{found[1]}  # {elided[found[2]]}" if found and found[2] in elided else line
