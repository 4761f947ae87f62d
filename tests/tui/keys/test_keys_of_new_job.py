"""Each key of the form for a new job does what the table says."""

from __future__ import annotations

import json
from pathlib import Path

from tests.scripted.server import Answer, Compute
from tests.support.playground import Playground
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import (
    PYTORCH_JOBS,
    at,
    changes,
    seen,
    titled,
    world,
)
from tui.jobs.new_job.draft import FOLDER

WORKSPACE = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"
ECHO = Compute(lambda asked: Answer(json.loads(asked.body), 201))
"""Answer to a create as a server does that has nothing against it."""


def created(play: Playground, *, dry: bool) -> list[str]:
    """Return the names of the jobs that the cluster was asked to create, in dry runs or in earnest."""
    asked = play.cluster.asked(PYTORCH_JOBS, method="POST")
    return [json.loads(each.body)["metadata"]["name"] for each in asked if ("dryRun" in each.query) == dry]


@proves(
    "new.next_section",
    "new.previous_section",
    "new.create",
    "new.dry_run",
    "new.yaml",
    "new.edit_yaml",
    "new.save_draft",
    "new.save_template",
    "new.import",
    "new.git_login",
    "new.jump",
    "new.leave",
)
async def test_keys_of_the_form_for_a_new_job(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        play.cluster.say(PYTORCH_JOBS, ECHO, method="POST")
        play.cluster.say(WORKSPACE, Answer({"metadata": {"name": "workspace"}, "status": {"phase": "Bound"}}))
        await play.press("n")
        await play.until(at(play, "Name"))
        await hands.press("new.next_section", at(play, "Code"), undo=["pageup"])
        await play.press("pagedown")
        await hands.press("new.previous_section", at(play, "Template"), undo=["pagedown"])
        await play.press("pageup", "tab")
        await hands.press("new.yaml", lambda: not at(play, "Name")(), undo=["ctrl+y"])
        await play.press("ctrl+y")
        await hands.press("new.edit_yaml", seen(play, " 1  apiVersion"), undo=["ctrl+y"])
        await hands.press("new.jump", seen(play, "Template           a ", "Namespace"), undo=["escape"])
        await hands.press("new.save_template", seen(play, "Save as which template?"), undo=["escape"])
        await hands.press("new.import", seen(play, "Import which file?"), undo=["escape"])
        await hands.press("new.git_login", seen(play, "Only git over https uses"))
        assert changes(play) == []
        await play.press("x")
        await hands.press("new.leave", seen(play, "Save a draft before leaving?"), undo=["escape"])
        drafts = tmp_path / "state" / FOLDER
        await hands.press(
            "new.save_draft",
            lambda: any('"x"' in draft.read_text() for draft in drafts.glob("lab-*/new-job-saved-*.json")),
        )
        await hands.press("new.dry_run", seen(play, "dry run passed at"))
        assert created(play, dry=True) == ["x"]
        await hands.press("new.create", seen(play, "Create PyTorchJob x in default?"))
        assert created(play, dry=False) == []
        await play.press("enter")
        await play.until(lambda: created(play, dry=False) == ["x"])
        await play.until(titled(play, "Jobs › x › logs"))
