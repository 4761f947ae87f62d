"""Redaction: no planted secret survives, what is no secret does, and JSON and YAML stay what they are."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from k8s.text.errors import KubeError
from k8s.text.home import require_own_folder
from k8s.text.redact import MARK, Redactor
from k8s.text.yaml_writer import to_yaml
from tests.support.objects import Object, recorded
from tests.support.second_account import NOBODY, only_root
from tui.__main__ import FAILED, main

NAMES = st.sampled_from(
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "DB_PASSWORD",
        "AWS_ACCESS_KEY_ID",
        "AWS_REGION",
        "MY_SECRET",
        "GIT_CREDENTIALS",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "apiKey",
        "MyPassword",
        "HFTOKEN",
        "REGISTRY_AUTH",
        "SSH_PRIVATE_KEY",
    ]
)
RANDOM = st.from_regex(r"[A-Za-z][0-9][A-Za-z0-9]{14,40}", fullmatch=True)
SECRETS = st.text(alphabet="abcXYZ0189+/_.~!%^*-", min_size=8, max_size=30).filter(
    lambda text: any(char.isalpha() for char in text) and text[0].isalnum() and text[-1].isalnum()
)
"""Passwords as people choose them, where a name says that they are."""
ANY = st.text(max_size=40).filter(lambda text: len(text.strip()) > 2)


def env_of(name: str, value: str) -> Object:
    return {
        "kind": "Pod",
        "spec": {"containers": [{"env": [{"name": name, "value": value}, {"name": "LR", "value": "1"}]}]},
    }


def secret(_: str, value: str) -> Object:
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return {"kind": "Secret", "apiVersion": "v1", "data": {"a": encoded}, "stringData": {"b": value}}


OBJECTS = [
    env_of,
    secret,
    lambda name, value: {"kind": "List", "items": [secret(name, value)]},
    lambda name, value: {"kind": "SecretList", "items": [{"data": {"x": value}, "metadata": {"name": "a"}}]},
    lambda name, value: {"items": [{"type": "kubernetes.io/tls", "data": {"tls.crt": value}}]},
    lambda name, value: {"metadata": {"annotations": {"last": json.dumps(env_of(name, value))}}},
    lambda name, value: {"command": ["train", f"--{name.lower()}", value, "--lr", "1"]},
    lambda name, value: {"httpHeaders": [{"name": "Authorization", "value": value}]},
    lambda name, value: {"users": [{"name": "li", "user": {"token": value, "client-key-data": value}}]},
    lambda name, value: {"auth-provider": {"config": {"refresh-token": value, "client-secret": value}}},
    lambda name, value: {"params": {name: value, "more": {"api_keys": [value]}}},
]


@settings(max_examples=100)
@given(name=NAMES, value=ANY, place=st.sampled_from(OBJECTS))
def test_no_secret_in_an_object_survives(name: str, value: str, place: Any) -> None:
    assume(not value.startswith("--") and not value.startswith("$"))
    assume(not value.replace(".", "").replace("-", "").replace("+", "").rstrip("%").isdigit())
    assume(value.lower() not in ("true", "false", "yes", "off", "none", "null", "auto"))
    obj = place(name, value)
    found = Redactor().object(obj)
    assume(value not in json.dumps(place("x", ""), ensure_ascii=False))
    assert value not in _strings(found)
    assert all(value not in text for text in _strings(found) if not MARK.search(text))
    assert json.loads(json.dumps(found)) == found
    assert Redactor().object(found) == found


SECRET = "correct-horse-7x"
NAMES_IT = {"env": [{"name": "REGISTRY_PASSWORD", "value": SECRET}]}
REPEATS_IT = (
    {"command": ["sh", "-c", f"docker login -u li -p={SECRET} reg"]},
    {"args": [SECRET]},
    {"annotations": {"note": f"with {SECRET}"}},
    {"last": json.dumps({"args": [SECRET], **NAMES_IT})},
)


@pytest.mark.parametrize("repeats", REPEATS_IT)
def test_redaction_does_not_depend_on_the_order_of_fields(repeats: Object) -> None:
    orders = ({**NAMES_IT, **repeats}, {**repeats, **NAMES_IT}, [NAMES_IT, repeats], [repeats, NAMES_IT])
    removed = set()
    for obj in orders:
        redactor = Redactor()
        assert SECRET not in json.dumps(redactor.object(obj))
        removed.add(tuple(sorted(redactor.removed.items())))
    assert len(removed) == 1, "each mark is counted once, in any order"
    assert SECRET not in Redactor().text(f"got {SECRET}\nREGISTRY_PASSWORD={SECRET}")


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []


NAMED_TEXTS = [
    "{name}={value}",
    "export {name}={value} && run",
    "  {name}: {value}",
    "- {name}: '{value}'",
    '2026-11-20 10:00 INFO config {{"{name}": "{value}", "lr": 1}}',
    "{{'{name}': '{value}', 'lr': 1}}",
    '{name} = "{value}"',
    "os.environ['{name}'] = '{value}'",
    'said: "{{\\"{name}\\": \\"{value}\\"}}"',
    "train.py --{flag}={value} --lr 1",
    "train.py --{flag} {value}",
    "train.py --{flag} '{value} and more'",
    "Authorization: Bearer {value}",
    "curl -H 'authorization: Basic {value}' https://x",
    "got bearer {value} from there",
    "https://me:{value}@host/path",
    "postgresql://{value}@host:5432/db",
    "curl -s -u me:{value} https://x",
    "https://host/x?a=1&api_key={value}&b=2",
]


@settings(max_examples=300)
@given(
    name=NAMES,
    value=SECRETS,
    text=st.sampled_from(NAMED_TEXTS),
    before=st.sampled_from(["", "[rank3]: ", "a\nb "]),
)
@pytest.mark.slow
def test_no_secret_in_a_line_of_a_log_survives(name: str, value: str, text: str, before: str) -> None:
    assume(not ("@" in text and "/" in value and ":{value}" not in text))
    line = before + text.format(name=name.upper(), flag=name.lower().replace("_", "-"), value=value)
    found = Redactor().text(line)
    assert value not in found
    assert MARK.search(found)
    assert found.startswith(before)
    assert Redactor().text(found) == found


FORMS = [
    "eyJhbGciOiJIUzI1NiJ9.eyJ{value}.{value}",
    "AKIA0123456789ABCDEF {value_gone}",
    "ghp_{value}aaaaaaaaaa",
    "hf_{value}aaaaaaaa",
    "sk-{value}aaaa",
    "-----BEGIN RSA PRIVATE KEY-----\n{value}\n{value}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{value}\n{value}",
    "wandb: your api key is {value}",
    "using token {value} for login",
]


@settings(max_examples=100)
@given(
    value=RANDOM,
    text=st.sampled_from(FORMS),
    around=st.sampled_from(["{}", "x {} y", '"{}"', "a={}", "1\n{}\n2"]),
)
def test_a_secret_that_is_known_by_its_form_needs_no_name(value: str, text: str, around: str) -> None:
    said = around.format(text.replace("{value_gone}", "").replace("{value}", value))
    found = Redactor().text(said)
    assert value not in found
    assert "AKIA" not in found
    assert Redactor().text(found) == found


@given(value=RANDOM)
def test_a_secret_that_a_variable_held_is_found_again_wherever_it_is_printed(value: str) -> None:
    redactor = Redactor()
    redactor.object({**env_of("WANDB_API_KEY", value), **secret("", f"hunter {value}")})
    said = redactor.text(
        f"odd {value}!\n{base64.b64encode(f'hunter {value}'.encode()).decode()} hunter {value}"
    )
    assert value not in said
    assert base64.b64encode(f"hunter {value}".encode()).decode() not in said
    assert redactor.removed["env WANDB_API_KEY"] >= 2


def test_ordinary_training_output_is_not_redacted() -> None:
    for text in [
        "step 20 loss=0.5 lr=1e-4 tokens=4096 tokens/s: 812.3k key_dim=64 num_key_value_heads=8",
        "TOKENIZERS_PARALLELISM=false MAX_TOKENS=4096 PWD=/workspace",
        "[rank0]: Train Epoch: 1 [640/60000 (1%)] tokens 1,234,567 loss 3.2",
        "KeyError: 'layer.0.weight'",
        "torchrun --nproc-per-node 8 train.py --max-tokens 512 --tokenizer bert --key-size=64",
        "--token=$(HF_TOKEN) PASSWORD=${DB_PASSWORD}",
        "docker-pullable://localhost:5000/team/x@sha256:" + "ab12" * 16,
        "https://host:6443/apis/kubeflow.org/v1 mail me@example.com",
        "tokenizer: /data/llama\nmodel: llama",
        '{"max_tokens": 5, "key": "nvidia.com/gpu", "primary_key": true}',
        "sha256 " + "0123456789abcdef" * 4,
    ]:
        assert Redactor().text(text) == text


def test_objects_of_a_cluster_without_secrets_are_left_as_they_are() -> None:
    for name in ("pods", "nodes", "events", "pytorchjobs"):
        for obj in recorded(name):
            assert Redactor().object(obj) == obj, obj["metadata"]["name"]


def test_a_reference_to_a_secret_is_not_redacted() -> None:
    obj = {
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token-of-mine"}}}],
        "volumes": [{"name": "creds", "secret": {"secretName": "wandb-secret"}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry-login"}],
        "topologyKey": "kubernetes.io/hostname",
    }
    assert Redactor().object(obj) == obj


CONFIG = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.none(), SECRETS, st.text(max_size=90)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(NAMES, st.sampled_from(["lr", "name", "key", "-x", "a b"])), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(config=st.dictionaries(NAMES | st.just("model"), CONFIG, max_size=4))
@pytest.mark.slow
def test_json_stays_json_and_yaml_stays_yaml(config: Object) -> None:
    assert set(json.loads(Redactor().text(json.dumps(config)))) == set(config)
    assert set(json.loads(Redactor().text(json.dumps(config, indent=2)))) == set(config)
    found = yaml.safe_load(to_yaml(Redactor().object(config)))
    assert set(found) == set(config)


@settings(max_examples=200)
@given(
    config=st.dictionaries(
        NAMES | st.just("lr"), st.integers(0, 9) | SECRETS | st.text("ab 1:#'\"\n", max_size=99)
    )
)
@pytest.mark.slow
def test_a_config_that_a_job_prints_as_yaml_stays_yaml(config: Object) -> None:
    said = yaml.safe_dump(config, width=30)
    found = Redactor().text(said)
    assert set(yaml.safe_load(found)) == set(config)
    again = Redactor().text(found)
    assert again == found


@settings(max_examples=200)
@given(text=st.text(alphabet="token=:k ey\"'\\\n-<>redacted/@{}[]1A.", max_size=80))
def test_redaction_of_any_text_is_idempotent(text: str) -> None:
    found = Redactor().text(text)
    assert Redactor().text(found) == found
    assert found.count("\n") <= text.count("\n")


def test_a_base64_secret_is_also_redacted_in_decoded_form() -> None:
    redactor = Redactor()
    held = base64.b64encode(b"hunter2-and-more").decode()
    shown = redactor.object({"kind": "Secret", "type": "Opaque", "data": {"login": held}})
    assert shown["data"] == {"login": "<redacted secret login>"}
    assert redactor.text("it logs in with hunter2-and-more now") == (
        "it logs in with <redacted secret login> now"
    )
    assert held not in redactor.text(f"it is stored as {held}")


def test_a_secret_that_begins_with_another_leaves_no_tail() -> None:
    redactor = Redactor()
    redactor.remember("short", "correct-horse")
    redactor.remember("long", "correct-horse-battery-staple")
    assert redactor.text("said: correct-horse-battery-staple!") == "said: <redacted long>!"
    assert redactor.text("said: correct-horse!") == "said: <redacted short>!"


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o1777])
def test_a_folder_owned_by_the_user_and_a_missing_folder_are_accepted(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    require_own_folder(tmp_path, "XDG_DATA_HOME")
    require_own_folder(tmp_path / "none", "XDG_DATA_HOME")


def test_a_missing_folder_is_judged_by_the_nearest_above(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KubeError, match="open to other users"):
        require_own_folder(tmp_path / "none" / "gpuconsole", "XDG_STATE_HOME")


def test_a_folder_that_every_user_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KubeError, match="open to other users") as caught:
        require_own_folder(tmp_path, "XDG_DATA_HOME")
    assert caught.value.hint == f"Run chmod o-w {tmp_path}, or set XDG_DATA_HOME."


@only_root
@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"])
@pytest.mark.parametrize("command", [["sandbox", "status"], ["sandbox", "start"]], ids=str)
def test_a_folder_of_another_user_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    command: list[str],
) -> None:
    for each in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(each, str(tmp_path / each))
    folder = tmp_path / variable / "gpuconsole"
    folder.mkdir(parents=True)
    os.chown(folder, NOBODY, NOBODY)
    assert main(command) == FAILED
    said = capsys.readouterr().err
    assert f"{folder} belongs to nobody, and gpuconsole runs as root." in said
    assert f"Set {variable} to a folder of your own" in said
    assert list(folder.iterdir()) == []


@only_root
def test_a_sandbox_is_not_made_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)
    assert main(["sandbox", "start"]) == FAILED
    assert f"{tmp_path} belongs to nobody" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
