"""Print created objects for `submit` and `clone`: a line each, or manifests with secrets redacted."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Sequence

from k8s.jobs.owned_objects import OwnedObject
from k8s.kinds import Manifest
from k8s.text.redact import Redactor, masked
from k8s.text.yaml_writer import to_yaml
from tui.commands.support.output import write, write_object, write_stderr
from tui.draft.manifest_yaml import ManifestObject

_FLAG = "--show-secrets"


def write_owned_objects(
    owned_objects: Iterable[OwnedObject], words: str, used: Collection[OwnedObject] = ()
) -> None:
    """Print a line per object: `service/bert created`.

    Args:
        owned_objects: The job's owned objects; optional ones are left out, they may not exist.
        words: What happened to them, such as `created`.
        used: The objects that existed before.
    """
    for owned in owned_objects:
        if owned.is_optional:
            continue
        resource, name = owned.resource, owned.manifest["metadata"]["name"]
        full_kind = ".".join(filter(None, (resource.kind.lower(), resource.group)))
        write(f"{full_kind}/{name} {'used, it is there already' if owned in used else words}")


def add_show_secrets(parser: argparse.ArgumentParser) -> None:
    """Add `--show-secrets`."""
    # Suppressed, or else the kind's parser would overwrite what was said before the kind.
    words = "with -o, do not redact secrets, so that the output can be created"
    parser.add_argument(_FLAG, action="store_true", default=argparse.SUPPRESS, help=words)


def _redacted(manifests: Sequence[Manifest]) -> list[Manifest]:
    redactor = Redactor()
    redactor.object([each for each in manifests if each.get("kind") == "Secret"])  # remembers the secrets
    redactor.removed.clear()
    redacted = redactor.object([{} if each.get("kind") == "Secret" else each for each in manifests])
    shown = [found or masked(each) for each, found in zip(manifests, redacted, strict=True)]
    if redactor.removed:
        write_stderr(f"Redacted: {', '.join(redactor.removed)}. To print them: {_FLAG}")
    return shown


def namespace_of(manifest: Manifest, namespace: str) -> str:
    """Return the namespace that a manifest names, or else the given one."""
    return str(manifest["metadata"].get("namespace") or namespace)


def write_created(
    wanted: Sequence[ManifestObject], namespace: str, words: str, flags: argparse.Namespace
) -> None:
    """Print a line per object, such as `Job default/a created.`, or with `-o` their manifests."""
    manifests = [manifest for _, manifest in wanted]
    shown = _redacted(manifests) if flags.output and not flags.show_secrets else manifests
    if flags.output == "json":
        many = {"apiVersion": "v1", "kind": "List", "items": shown}
        write_object(shown[0] if len(shown) == 1 else many, flags.output)
    elif flags.output == "yaml":
        for each in shown:
            write(f"---\n{to_yaml(each)}".rstrip())
    else:
        for resource, manifest in wanted:
            meta = manifest["metadata"]
            name = meta.get("name") or f"{meta['generateName']}…"
            write(f"{resource.kind} {namespace_of(manifest, namespace)}/{name} {words}.")
