"""JSONPath templates: the examples of kubectl's documentation, and the errors of what is none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.text.jsonpath import Template, find, parse_path

# The object of the documentation, shortened.
OBJECT = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": "4"}, "addresses": [{"address": "127.0.0.1"}]},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [{"address": "127.0.0.2"}, {"type": "another", "address": "127.0.0.3"}],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}, "age": 3},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}, "age": 12},
    ],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        (".kind", "List"),
        ("{$.kind}", "List"),
        ("{['kind']}", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1:].name}", "e2e"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[7].name}", ""),
        ("{.items[*]['metadata.name', 'kind']}", "None None"),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.age>3)].name}", "e2e"),
        ("{.users[?(@.age>=3)].name}", "myself e2e"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ("{.items[*].status.addresses[0:1].address}", "127.0.0.1 127.0.0.2"),
        ("{.users[0,1].age}", "3 12"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu": "4"}] [127.0.0.2, {"cpu": "8"}] ',
        ),
        ('{range .items[*]}{.metadata.name}{"\\t"}{end}', "127.0.0.1\t127.0.0.2\t"),
        (r"{.items[0].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
        ("{.nothing.at.all}", ""),
        ("{.users[0].user}", "{}"),
    ],
)
def test_a_jsonpath_template_renders_as_in_the_kubectl_documentation(template: str, expected: str) -> None:
    assert Template(template).render(OBJECT) == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.a", "a brace is not closed"),
        ("{range .items[*]}", "without {end}"),
        ("{end}", "without {range}"),
        ("{.a[}", "a ] is missing"),
        ("{.a[x]}", "no index, name, slice or filter"),
        ("{.a[?(@.b==c)]}", "neither a number nor quoted"),
        ("{.a b}", "unexpected ' '"),
        ("{...}", "a name is missing"),
    ],
)
def test_an_invalid_jsonpath_template_is_rejected(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Template(template)


@given(st.text("{}[].*?@$'\"\\ab01:,=<>() rangeend\n"), st.text("[].*?@'\"ab01:,=<>()"))
def test_any_text_is_parsed_as_jsonpath_or_rejected(template: str, path: str) -> None:
    for parse in (lambda: Template(template).render(OBJECT), lambda: find(parse_path(path), OBJECT)):
        try:
            parse()
        except ValueError as error:
            assert str(error)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize(
    "template",
    [
        "{.clusters[*].name}",
        '{range .users[*]}{.name}={.user}{"\\n"}{end}',
        "{.contexts[?(@.name=='b')].context.user}",
        "{.current-context}",
        "{..namespace}",
        "{.contexts[-1:].name}",
    ],
)
def test_jsonpath_templates_render_as_in_the_installed_kubectl(tmp_path: Path, template: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "b",
        "clusters": [{"name": "one", "cluster": {"server": "https://x"}}],
        "users": [{"name": "li", "user": {}}, {"name": "wu", "user": {"username": "wu"}}],
        "contexts": [
            {"name": "a", "context": {"cluster": "one", "user": "li"}},
            {"name": "b", "context": {"cluster": "one", "user": "wu", "namespace": "vision"}},
        ],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    words = ["kubectl", "config", "view", "--raw", f"--kubeconfig={path}", "-o", f"jsonpath={template}"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert Template(template).render(config).replace('": "', '":"') == printed
