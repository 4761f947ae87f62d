"""An object as it is read: secrets hidden, managedFields folded."""

from __future__ import annotations

import base64
from typing import Any

from k8s.text.yaml_writer import to_text
from tui.screens.documents.yaml import MASK, is_fold, object_text

MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:template": {}}}}]
JOB: dict[str, Any] = {
    "kind": "PyTorchJob",
    "metadata": {"name": "bert", "managedFields": MANAGED, "uid": "u"},
    "spec": {
        "containers": [
            {
                "env": [
                    {"name": "HF_TOKEN", "value": "hf_abcdefghijklmnopqrst"},
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                ],
                "args": ["--api-key", "k3yk3yk3yk3yk3y"],
            }
        ],
        "managedFields": "of somebody else",
    },
}


def test_secrets_are_masked_and_counted_and_other_values_stay() -> None:
    written = object_text(JOB)
    text = to_text(list(written.lines))
    assert "hf_abc" not in text and "k3yk3y" not in text
    assert f"name: HF_TOKEN\n      value: {MASK}" in text
    assert "value: INFO" in text
    assert written.secrets == 2


def test_secret_values_are_masked_in_the_last_applied_configuration_too() -> None:
    value = base64.b64encode(b"swordfish-123").decode()
    applied = f'{{"kind":"Secret","data":{{"password":"{value}"}}}}'
    secret = {
        "kind": "Secret",
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}},
        "data": {"password": value},
    }
    text = to_text(list(object_text(secret).lines))
    assert value not in text and f"password: {MASK}" in text


def test_secrets_are_shown_when_requested() -> None:
    written = object_text(JOB, shows_secrets=True)
    assert "hf_abcdefghijklmnopqrst" in to_text(list(written.lines))
    assert written.secrets == 0


def test_managed_fields_are_folded_into_one_line() -> None:
    written = object_text(JOB)
    folded = [line.text for line in written.folded]
    assert "  managedFields: … 4 lines folded" in folded
    assert written.managed == 4 == len(written.lines) - len(written.folded)
    assert sum(map(is_fold, written.folded)) == 1 and not any(map(is_fold, written.lines))
    assert folded[folded.index("  managedFields: … 4 lines folded") + 1] == "  uid: u"
    assert "  managedFields: of somebody else" in folded


def test_an_object_without_managed_fields_has_nothing_to_fold() -> None:
    written = object_text({"kind": "Node", "metadata": {"name": "a"}})
    assert written.folded == written.lines and written.managed == 0
