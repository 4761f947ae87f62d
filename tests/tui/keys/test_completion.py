"""What a half-typed command becomes."""

from __future__ import annotations

import pytest

from tui.keys import Argument
from tui.keys.completion import complete, nearest_command
from tui.screens import ACTIONS

NAMES: dict[Argument, list[str]] = {
    "job": ["bert-large", "vit"],
    "namespace": ["all", "vision"],
    "kind": ["pytorchjobs"],
}


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("", ""),
        ("no", "nodes"),
        ("NO", "nodes"),
        ("logs", ""),
        ("logs ", "logs bert-large"),
        ("logs v", "logs vit"),
        ("log v", "log vit"),
        ("ns v", "ns vision"),
        ("jobs x", ""),
        ("nonsense x", ""),
        ("py", "pytorchjobs"),
    ],
)
def test_a_command_is_completed_with_what_it_takes(typed: str, whole: str) -> None:
    assert complete(typed, NAMES, ACTIONS) == whole


def test_what_was_typed_last_comes_first() -> None:
    history = ["nodes", "ns vision", "new"]
    assert complete("n", NAMES, ACTIONS, history) == "new"
    assert complete("ns", NAMES, ACTIONS, history) == "ns vision"


@pytest.mark.parametrize(
    ("word", "meant"), [("volums", "volumes"), ("pytorchjob", "pytorchjobs"), ("zzz", ""), ("submt", "")]
)
def test_an_unknown_command_is_near_one_that_may_be_used(word: str, meant: str) -> None:
    assert nearest_command(word, NAMES["kind"], ACTIONS, is_read_only=True) == meant
