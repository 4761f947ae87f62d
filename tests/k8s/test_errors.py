"""Translation of a server's refusals into messages that a user can act on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.text.errors import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerFailed,
    Throttled,
    Unauthorized,
    from_status,
    join_sentences,
)

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (("Could not list pods.", "", "Log in."), "Could not list pods. Log in."),
        (("connection refused", "Retrying automatically."), "connection refused. Retrying automatically."),
        (
            ("It is not running. Start it with: gpuconsole sandbox start", "ctrl+r retries now."),
            "It is not running. ctrl+r retries now. Start it with: gpuconsole sandbox start",
        ),
        (("Job vit:", "no\n quota", "at gpu-1"), "Job vit: no quota. at gpu-1"),
        (("", " "), ""),
    ],
)
def test_joined_sentences_end_before_the_next_and_a_command_comes_last(
    parts: tuple[str, ...], line: str
) -> None:
    assert join_sentences(*parts) == line


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (418, ServerFailed),
        (422, Invalid),
        (429, Throttled),
        (500, ServerFailed),
        (503, ServerFailed),
    ],
)
def test_each_refusal_has_a_class_of_its_own(code: int, kind: type[KubeError]) -> None:
    error = from_status(code, {"message": "because"}, "list pods")
    assert type(error) is kind
    assert error.what == "Could not list pods."
    assert error.why == "The cluster says: because"


def test_an_error_shows_problem_cause_and_hint_on_separate_lines() -> None:
    error = from_status(403, {"message": 'user "li" cannot list nodes'}, "list nodes")
    assert str(error) == (
        "Could not list nodes.\n"
        'The cluster says: user "li" cannot list nodes\n'
        "Pick another namespace, or ask for a role that allows it."
    )


def test_a_response_without_a_message_reports_its_status_code() -> None:
    assert from_status(500, None, "list pods").why == "The cluster says: The server answered 500."


def test_a_name_conflict_is_distinguished_from_an_update_conflict() -> None:
    taken = from_status(409, {"reason": "AlreadyExists"}, "create Job a")
    late = from_status(409, {"reason": "Conflict"}, "update Job a")
    assert isinstance(taken, Conflict) and taken.is_name_in_use
    assert isinstance(late, Conflict) and not late.is_name_in_use


def test_the_fields_that_are_wrong_are_named() -> None:
    causes = [{"field": "spec.replicas", "message": "too many"}, {"field": None}, "nonsense"]
    error = from_status(422, {"details": {"causes": causes}}, "create Job a")
    assert isinstance(error, Invalid)
    assert error.causes["spec.replicas"] == "too many"


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", {}, 7.0),
        ("", {"retryAfterSeconds": 3}, 3.0),
        ("", {}, 1.0),
        ("Fri, 20 Nov 2026 18:00:00 GMT", {"retryAfterSeconds": 2}, 2.0),
        ("inf", {}, 1.0),
        ("nan", {}, 1.0),
        ("-5", {}, 1.0),
        ("", {"retryAfterSeconds": [1]}, 1.0),
    ],
)
def test_a_throttled_response_gives_the_retry_delay(
    header: str, details: dict[str, object], seconds: float
) -> None:
    error = from_status(429, {"details": details}, "list pods", header)
    assert isinstance(error, Throttled)
    assert error.retry_after_s == seconds


@given(st.sampled_from([400, 403, 409, 410, 422, 429, 500]), ANYTHING, st.text())
def test_any_response_body_becomes_an_error_with_a_message(code: int, body: object, header: str) -> None:
    nested = {"message": body, "reason": body, "details": {"causes": body, "retryAfterSeconds": body}}
    for status in (body, {"message": body, "details": body}, nested):
        assert from_status(code, status, "list pods", header).why


def test_a_long_refusal_is_cut() -> None:
    assert len(from_status(500, {"message": "x" * 100_000}, "list pods").why) < 2100


def test_an_exceeded_quota_does_not_hint_at_missing_permissions() -> None:
    said = {"message": 'pods "a" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8'}
    error = from_status(403, said, "create Pod a")
    assert isinstance(error, Forbidden)
    assert error.hint == "Ask for less, or for a larger quota."
