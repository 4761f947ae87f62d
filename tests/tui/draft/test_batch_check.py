"""A step of all ranks takes no more images than there are, or it is said before the job is created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from k8s.kinds.job_spec import JobSpec
from trainer.catalogue import Launcher, find
from tui.draft.preflight import describe_batch


def words(
    arguments: Sequence[str] = (), trainer: str = "ddp", launcher: Launcher = "torchrun", **more: Any
) -> str:
    ranks = more.pop("ranks", None)
    command = find(trainer).command(arguments, launcher=launcher, ranks=ranks)
    return describe_batch(JobSpec(name="a", image="i", trainer=trainer, command=tuple(command), **more))


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ((), {}),
        (("--batch-size", "3000"), {"workers": 2, "processes": 2}),
        (("--dataset", "mnist", "--batch-size=60000"), {}),
        (("--batch-size", "x"), {"workers": 4000}),
        (("--batch-size", "1", "--model", "resnet18"), {"workers": 4000, "processes": 8}),
        (("--batch-size", "1000000"), {"trainer": "mpi", "workers": 8}),
    ],
)
def test_no_batch_warning_if_there_are_enough_images_or_the_count_is_unknown(
    arguments: Sequence[str], more: dict[str, Any]
) -> None:
    assert words(arguments, **more) == ""


def test_too_few_images_are_counted_over_all_ranks() -> None:
    assert words(("--batch-size", "3001"), workers=2, processes=2) == (
        "would fail: a step takes 3,001 × 4 ranks = 12,004 images, and there are 12,000; "
        "choose a smaller batch size"
    )
    assert "there are 60,000" in words(("--dataset", "mnist", "--batch-size", "60001"))
    assert "there are 10;" in words(("--train-images=10",))


def test_the_batch_check_takes_the_rank_count_from_mpirun() -> None:
    assert "64 × 500 ranks" in words((), launcher="mpirun", ranks=500)
    assert words((), launcher="mpirun", ranks=2, workers=4000) == ""


def test_the_batch_check_ignores_a_custom_command() -> None:
    assert describe_batch(JobSpec(name="a", image="i", trainer="ddp", command=("true",), workers=4000)) == ""
