"""Objects written as YAML to be read: true to the object whatever it says, and quick for the largest."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from k8s.text.sanitize import UNSAFE
from k8s.text.yaml_writer import to_text, yaml_lines

_TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="ab \n\t:#-'\"|>{}[]&*!%@`,?yYnN0123456789.e~=<\u202e\x1b", max_size=12),
)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS)
OBJECTS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=15,
)


@given(OBJECTS)
def test_written_yaml_is_parsed_back_unchanged(obj: Any) -> None:
    found = yaml.safe_load(to_text(yaml_lines(obj)))
    assert found == obj
    assert type(found) is type(obj)


@given(OBJECTS)
def test_no_yaml_line_contains_control_characters(obj: Any) -> None:
    for line in yaml_lines(obj):
        assert not UNSAFE.search(line.text.replace("\t", ""))
        assert line.name_end == 0 or line.text[line.name_end - 1] == ":"


def test_yaml_matches_the_style_of_kubectl_but_keeps_multiline_text() -> None:
    obj = {
        "metadata": {"name": "bert", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {}},
        "spec": {
            "suspend": False,
            "args": ["--lr=1e-4", "a: b", "2", "yes", ""],
            "script": "set -e\n\tpython train.py\n",
            "steps": [{"name": "one", "run": "a\nb"}, [1, 2.5]],
        },
        "status": None,
    }
    assert to_text(yaml_lines(obj)) == (
        "metadata:\n"
        "  name: bert\n"
        '  creationTimestamp: "2026-01-01T00:00:00Z"\n'
        "  labels: {}\n"
        "spec:\n"
        "  suspend: false\n"
        "  args:\n"
        "  - --lr=1e-4\n"
        '  - "a: b"\n'
        '  - "2"\n'
        '  - "yes"\n'
        '  - ""\n'
        "  script: |\n"
        "    set -e\n"
        "    \tpython train.py\n"
        "  steps:\n"
        "  - name: one\n"
        "    run: |-\n"
        "      a\n"
        "      b\n"
        "  - - 1\n"
        "    - 2.5\n"
        "status: null\n"
    )


def test_yaml_lines_mark_the_position_of_field_names() -> None:
    lines = yaml_lines({"a": [{"image": "lab/train:1"}]})
    assert [(line.text, line.text[line.name_start : line.name_end]) for line in lines] == [
        ("a:", "a:"),
        ("- image: lab/train:1", "image:"),
    ]


def test_each_string_is_transformed_once() -> None:
    asked: list[str] = []

    def say(text: str) -> str:
        asked.append(text)
        return text.replace("secret", "••••")

    lines = yaml_lines({"a": "secret", "b": ["x\nsecret\n"], "secret": 1}, say)
    assert to_text(lines) == "a: ••••\nb:\n- |\n  x\n  ••••\nsecret: 1\n"
    assert asked == ["secret", "x\nsecret\n"]


def test_very_deep_nesting_is_written_on_one_line() -> None:
    deep: Any = "end"
    for _ in range(300):
        deep = {"a": deep}
    text = to_text(yaml_lines(deep))
    assert max(len(line) - len(line.lstrip()) for line in text.splitlines()) <= 200
    assert yaml.safe_load(text) == deep
