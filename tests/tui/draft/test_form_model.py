"""Model of the form: suggestions, visible errors, fields without an effect."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from k8s.snapshot import ClusterSnapshot
from tests.support.new_job_form import node
from tests.tui.screens.new_job.world import SNAPSHOT, sandbox
from tui.draft import form_model
from tui.draft.fields import COMMAND, JOB_FORM_FIELDS, hidden_fields
from tui.draft.form_model import FormModel
from tui.draft.job_draft import parse_values


def test_a_trainer_gets_two_workers_in_a_sandbox_with_two_free_gpus() -> None:
    for case, snapshot, workers in (
        ("two free", sandbox(0), "2"),
        ("on two nodes", sandbox(1, 1), "2"),
        ("one free", sandbox(1), "1"),
        ("none free", sandbox(2), "1"),
        ("not synced", replace(sandbox(0), is_synced=False), "1"),
        ("a real cluster", replace(SNAPSHOT, server_version="v1.31.0"), "1"),
    ):
        model = FormModel("vision", snapshot=snapshot)
        assert model.values["workers"] == workers, case
        assert any(f"= {workers} rank" in line.text for line in model.preflight), case
        assert not model.is_dirty, case


def test_the_number_of_workers_is_suggested_once_and_yields_to_input() -> None:
    model = FormModel("vision")
    for held in (0, 2):  # free once, and not any more
        model.suggest(sandbox(held))
        assert model.values["workers"] == "2"
    for run, workers in (("mpi", "2"), (COMMAND, "1"), ("ddp", "2")):
        model.set_value("run", run)
        assert model.values["workers"] == workers, run
    model.set_value("workers", "3")
    model.suggest(sandbox(0, 0))
    assert model.values["workers"] == "3"


def test_one_edit_parses_once_and_writes_the_objects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(name: str) -> None:
        made = getattr(form_model, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return made(*args, **kwargs)

        monkeypatch.setattr(form_model, name, counted)

    model = FormModel("vision", snapshot=sandbox(0))
    for name in ("parse_values", "documents_beside", "preflight"):
        count(name)
    for key, value in (("gpus", "2"), ("ddp.dataset", "imagenet"), ("name", "mine"), ("claim", "data")):
        calls.clear()
        model.set_value(key, value)
        assert calls == ["parse_values", "documents_beside", "preflight"], key
    calls.clear()
    model.suggest(sandbox(1))
    assert calls == ["parse_values", "preflight"]  # another snapshot, the same job


def test_the_preflight_follows_the_cluster() -> None:
    model = FormModel("vision", snapshot=SNAPSHOT)

    def says(words: str) -> bool:
        return any(words in line.text for line in model.preflight)

    assert says("fits now on a100-1; 6 of 8 GPUs free")
    model.set_value("gpus", "7")
    assert says("would wait for GPUs: master-0 needs 7 nvidia.com/gpu")
    model.suggest(ClusterSnapshot(nodes=(node("a100-1", 8),), is_synced=True))
    assert says("fits now on a100-1; 8 of 8 GPUs free")


OPEN = {"run": COMMAND, COMMAND: "train.py", "torchrun": "true", "sync_mode": "git"}
"""Values that show the most fields."""
RIGHT = {**OPEN, "name": "mended", "sync_source": "https://example.com/a.git", "log_dir": "/workspace/logs"}
"""Values of a valid job."""
BAD_TEXTS = ("-1", "Ä ö", "a\u2407")
"""Bad input for a number, for a name, and for any text: it may hold no control character."""


def test_every_wrong_field_has_an_error_that_is_visible_once_the_job_is_requested() -> None:
    model = FormModel("vision", snapshot=SNAPSHOT)
    model.load_draft({**RIGHT, "claim": "workspace"})
    assert model.errors == {}
    right = model.values
    fields = [each for each in JOB_FORM_FIELDS if each.control != "choice"]
    keys = [each.key for each in fields if each.key not in hidden_fields(right)]
    assert len(keys) > 40
    wrong: dict[str, str] = {}
    for key in keys:
        wrong[key] = next(text for text in BAD_TEXTS if _problem(right, key, text))
    model.load_draft({**right, **wrong})
    assert model.visible_errors == {}, "none was touched yet"
    model.touch(["gpus"])
    assert set(model.visible_errors) == {"gpus"}
    model.validate()
    assert set(model.visible_errors) == set(wrong)
    for key in keys:
        model.set_value(key, right[key])
        assert key not in model.errors
    assert model.errors == {}


def _problem(values: Any, key: str, text: str) -> str:
    """Return the problem that a text is in a field of a valid job; empty if it is none."""
    return parse_values({**values, key: text}).problems.get(key, "")
