"""A clone made by the form has the manifest that `gpuconsole clone` makes of the same job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from k8s.jobs.clone import clone
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JOB_FIELDS, JobSpec, Mount, Role, problems_of
from tests.k8s.kinds.example_fields import BASE, EXAMPLES, IN_CODE, OF_KIND
from trainer.catalogue import TRAINERS
from tui.draft.form_model import FormModel
from tui.draft.job_draft import JobDraft

GIT = {"sync_mode": "git", "sync_source": "https://host.example/code.git", "working_dir": "/root"}
CODE: dict[str, dict[str, Any]] = {
    "sync_mode": GIT,
    "sync_source": {"sync_mode": "rsync", "sync_source": "host::code", "working_dir": "/root"},
    "sync_branch": {**GIT, "sync_branch": "main"},
    "sync_revision": {**GIT, "sync_revision": "0123abc"},
    "sync_path": {**GIT, "sync_path": "/data/code", "mounts": (Mount("data", "/data"),)},
    "git_secret": {**GIT, "git_secret": "login"},
    "sync_image": {**GIT, "sync_image": "git:2"},
}
WITHOUT_OBJECT = {"config_files", "new_claims"}
"""Fields whose content is in no field of the job's own object."""
_RUN = "/workspace/bert-20261122-082033-417"
_ON_CLAIM: dict[str, Any] = {
    "mounts": (Mount("workspace", "/workspace"),),
    "working_dir": "/workspace",
    "log_dir": f"{_RUN}/logs",
}
SITUATIONS: dict[str, dict[str, Any]] = {
    "own command": {},
    "shell line": {"command": ("bash", "-c", "cd /code\npython train.py\n")},
    "torchrun": {"torchrun": True},
    "elastic": {"elastic": (1, 4)},
    "no GPUs of its own": {"gpus": 0},
    "GPUs of a role": {"gpus": 0, "gpu_resource": "amd.com/gpu", "roles": (Role("worker", gpus=4),)},
    "claim": {"mounts": (Mount("workspace", "/workspace"),), "working_dir": "/workspace"},
    "packaged trainer": {
        "trainer": "ddp",
        "command": ("--checkpoint-dir", f"{_RUN}/checkpoints"),
        **_ON_CLAIM,
    },
    "folders of its own": {"trainer": "ddp", **_ON_CLAIM, "log_dir": "/workspace/saved"},
    "unknown argument": {"trainer": "ddp", "command": ("--newer", "1"), **_ON_CLAIM},
    "without a claim": {"trainer": "ddp", "command": (), "log_dir": "logs"},
}
"""Values of other fields that a field may depend on."""
_STAMP = re.compile(r"-\d{8}-\d{6}-\w+")


def specs(kind: CreatableKind) -> Iterator[tuple[str, JobSpec]]:
    """Yield jobs in which each field has an example value, in every situation that permits it."""
    for name in JOB_FIELDS:
        example: dict[str, Any] = OF_KIND.get(kind.word, {}).get(name) or {**EXAMPLES, **CODE}.get(name, {})
        is_wide = JOB_FIELDS[name].section in ("resources", "launch")
        for title in SITUATIONS if is_wide else ("own command", "packaged trainer"):
            situation = SITUATIONS[title]
            fixed: dict[str, Any] = {key: situation[key] for key in ("log_dir", "roles") if key in situation}
            changes: dict[str, Any] = {"user": "ann", **situation, **example, **fixed}
            spec = replace(BASE, **changes)
            if spec.trainer:
                words = ("--epochs", "3", "--log-dir", spec.log_dir, *situation.get("command", ()))
                draft = JobDraft({"gpus": spec.gpus, "slots": spec.slots}, TRAINERS[0], words)
                spec = replace(spec, command=draft.spec(kind).command)
            if not problems_of(spec) and not set(kind.unsupported(spec)) - set(kind.lacks):
                yield f"{title}, {name}", spec


def undated(manifest: Manifest) -> Any:
    """Return a manifest without the time in the folder of a trainer's run."""
    return json.loads(_STAMP.sub("-STAMP", json.dumps(manifest)))


def test_every_field_has_an_example_to_clone() -> None:
    assert {*EXAMPLES, *CODE} | WITHOUT_OBJECT == set(JOB_FIELDS)
    assert {*CODE, *WITHOUT_OBJECT} == IN_CODE


@pytest.mark.slow
@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_form_and_clone_command_produce_the_same_manifest_for_every_field(kind: CreatableKind) -> None:
    differences: dict[str, Any] = {}
    count = 0
    for title, spec in specs(kind):
        obj = with_spec(kind.manifest(spec), kind.supported(spec))
        found = clone(json.loads(json.dumps(obj)), user="li")
        if found.spec is not None:
            state = FormModel("vision", "li", found)
            made = undated(state.result.kind.manifest(state.result.spec))
            if made != undated(found.manifest) or state.not_carried_over or state.errors:
                differences[title] = (made, undated(found.manifest), state.not_carried_over, state.errors)
            count += 1
    assert list(differences) == []
    assert count > 200
