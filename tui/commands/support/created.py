"""Print created objects for `submit` and `clone`: a line each, or manifests with secrets redacted."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Sequence

from k8s.jobs.owned_objects import OwnedObject
from k8s.kinds import Manifest
from k8s.text.redact import Redactor, masked
from tui.commands.support.output import write, write_stderr

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


def shown_manifests(manifests: Sequence[Manifest], *, with_secrets: bool) -> list[Manifest]:
    """Return manifests for printing, and report redactions on stderr."""
    if with_secrets:
        return list(manifests)
    redactor = Redactor()
    redactor.object([each for each in manifests if each.get("kind") == "Secret"])  # remembers the secrets
    redactor.removed.clear()
    redacted = redactor.object([{} if each.get("kind") == "Secret" else each for each in manifests])
    shown = [found or masked(each) for each, found in zip(manifests, redacted, strict=True)]
    if redactor.removed:
        write_stderr(f"Redacted: {', '.join(redactor.removed)}. To print them: {_FLAG}")
    return shown
