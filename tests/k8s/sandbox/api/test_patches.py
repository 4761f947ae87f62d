"""Selectors and patches of the sandbox, applied to generated objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from k8s.sandbox.api.admission import patches
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.queries import field_requirements, label_requirements
from k8s.sandbox.api.served import BY_KEY
from tests.k8s.sandbox.api.strategies import anything, near_objects, objects, words
from tests.k8s.sandbox.calls import Object

# Selectors


requirement = st.tuples(
    words,
    st.sampled_from(["=", "==", "!=", " in ", " notin ", "", "!"]),
    st.lists(words, min_size=1, max_size=3),
)


@given(requirements=st.lists(requirement, max_size=4), labels=st.dictionaries(words, words, max_size=3))
def test_label_selectors_match_the_expected_objects(
    requirements: list[tuple[str, str, list[str]]], labels: dict[str, str]
) -> None:
    text, wanted = [], True
    for key, operator, values in requirements:
        value = labels.get(key)
        match operator:
            case "=" | "==":
                text.append(f"{key}{operator}{values[0]}")
                wanted = wanted and value == values[0]
            case "!=":
                text.append(f"{key}!={values[0]}")
                wanted = wanted and value != values[0]
            case " in " | " notin ":
                text.append(f"{key}{operator}({', '.join(values)})")
                wanted = wanted and (value in values) == (operator == " in ")
            case "":
                text.append(key)
                wanted = wanted and value is not None
            case _:
                text.append(f"!{key}")
                wanted = wanted and value is None
    obj = {"metadata": {"labels": labels}}
    assert all(holds(obj) for holds in label_requirements(",".join(text))) == wanted


@given(text=st.text("ab,=!()in ot./-é", max_size=12))
@example("a=b,,c")
@example("a in ()")
def test_selectors_are_parsed_or_refused(text: str) -> None:
    for read in (label_requirements, lambda text: field_requirements(BY_KEY["pods"], text)):
        try:
            requirements = read(text)
        except ApiError as error:
            assert error.code == 400
        else:
            assert all(holds({"metadata": {"name": "x"}}) in (True, False) for holds in requirements)


# Patches


def without_nulls(value: Any) -> Any:
    return patches.without_nulls(value)


def merge_patch_between(old: Any, new: Any) -> Any:
    """Return the merge patch from `old` to `new`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: Object = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        if name not in old or old[name] != value or type(old[name]) is not type(value):
            patch[name] = merge_patch_between(old.get(name), value)
    return patch


@given(old=objects.map(without_nulls), new=objects.map(without_nulls))
def test_a_merge_patch_turns_one_object_into_the_other(old: Object, new: Object) -> None:
    before = copy.deepcopy(old)
    assert patches.merge(old, merge_patch_between(old, new)) == new
    assert old == before


@given(old=objects, patch=anything)
def test_without_named_lists_a_strategic_patch_is_a_merge_patch(old: Object, patch: Any) -> None:
    before = copy.deepcopy(old)
    assert patches.strategic(old, patch) == patches.merge(old, patch)
    assert old == before


elements = st.lists(
    st.fixed_dictionaries({"name": words}, optional={"x": st.integers()}),
    max_size=4,
    unique_by=lambda e: e["name"],
)


@given(old=elements, new=elements)
def test_a_strategic_patch_merges_elements_by_name(old: list[Object], new: list[Object]) -> None:
    merged = patches.strategic({"containers": old}, {"containers": new})["containers"]
    wanted = {each["name"]: each for each in old}
    for each in new:
        wanted[each["name"]] = {**wanted.get(each["name"], {}), **each}
    assert {each["name"]: each for each in merged} == wanted
    assert len(merged) == len(wanted)


@given(
    old=objects,
    patch=st.recursive(
        near_objects,
        lambda inner: st.dictionaries(
            st.sampled_from(
                [
                    "$patch",
                    "$retainKeys",
                    "$setElementOrder/containers",
                    "containers",
                    "finalizers",
                    "$deleteFromPrimitiveList/finalizers",
                ]
            ),
            inner,
            max_size=3,
        ),
        max_leaves=6,
    ),
)
def test_strategic_patches_are_applied_or_refused(old: Object, patch: Any) -> None:
    for target in (old, {"containers": [{"name": "a"}], "finalizers": ["a"]}):
        try:
            patches.strategic(target, patch)
        except ApiError as error:
            assert error.code == 400


def test_deleting_from_a_value_that_is_not_a_list_is_refused() -> None:
    patch = {"finalizers": True, "$deleteFromPrimitiveList/finalizers": []}
    with pytest.raises(ApiError, match="finalizers is not a list"):
        patches.strategic({}, patch)


# Each directive once


def test_a_strategic_patch_follows_its_directives() -> None:
    for old, patch, new in (
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": 1, "b": 2, "c": 3}, {"$retainKeys": ["a", "c"], "a": 4}, {"a": 4, "c": 3}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"name": "A", "$patch": "delete"}, {"name": "X", "$patch": "delete"}]},
            {"env": [{"name": "B"}]},
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"$patch": "replace"}, {"name": "C"}]},
            {"env": [{"name": "C"}]},
        ),
        (
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}]},
            {"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]},
            {"env": [{"name": "C"}, {"name": "A"}, {"name": "B"}]},
        ),
        (
            {"ports": [{"containerPort": 80, "name": "a"}]},
            {"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]},
            {"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]},
        ),
        (
            {"ports": [{"port": 80, "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}]},
            {"ports": [{"port": 80, "name": "b"}]},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/b"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
        ),
    ):
        before = copy.deepcopy(old)
        assert patches.strategic(old, patch) == new
        assert old == before


def test_an_element_without_the_key_of_its_list_is_refused() -> None:
    with pytest.raises(ApiError) as error:
        patches.strategic({"env": [{"name": "A"}]}, {"env": [{"value": "1"}]})
    assert error.value.code == 400
    assert "does not contain declared merge key: name" in str(error.value)


def test_a_json_patch_applies_its_operations() -> None:
    for operation, new in (
        ({"op": "add", "path": "/b", "value": 2}, {"a": [1, 2], "b": 2}),
        ({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2]}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"op": "move", "from": "/a", "path": "/b"}, {"b": [1, 2]}),
        ({"op": "copy", "from": "/a", "path": "/b"}, {"a": [1, 2], "b": [1, 2]}),
        ({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2]}),
    ):
        old: Object = {"a": [1, 2]}
        assert patches.json_patch(old, [operation]) == new
        assert old == {"a": [1, 2]}


def test_a_json_patch_is_applied_completely_or_refused() -> None:
    for operation in (
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "remove", "path": "/x"},
        {"op": "copy", "path": "/b"},
    ):
        old: Object = {"a": [1, 2]}
        with pytest.raises(ApiError) as error:
            patches.json_patch(old, [{"op": "remove", "path": "/a/0"}, operation, operation])
        assert error.value.code == 422
        assert old == {"a": [1, 2]}
