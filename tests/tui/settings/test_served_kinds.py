"""Stored answers about kinds: found again, private, harmless if damaged."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.cluster.discovery import ServedKinds
from tui.settings.served_kinds import MOST_SERVERS, SERVED_FILE, find_served, store_served

HERE = ClusterConfig(host="https://lab:6443")
FOUND = ServedKinds(
    {"batch/v1": frozenset({"jobs"})},
    frozenset({"batch/v1"}),
    {"batch/v1/jobs": "x1"},
    frozenset({"batch/v1", "v1"}),
)


def test_cached_kinds_are_found_only_for_the_same_host_and_certificate_authority(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert find_served(folder, HERE) is None
    store_served(folder, HERE, FOUND)
    assert find_served(folder, HERE) == FOUND
    assert find_served(folder, ClusterConfig(host="https://lab:6444")) is None
    made_anew = ClusterConfig(host=HERE.host, ssl_ca_pem="another authority")
    assert find_served(folder, made_anew) is None
    assert (folder / SERVED_FILE).stat().st_mode & 0o777 == 0o600


def test_cached_kinds_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_served(tmp_path, HERE, FOUND)
    now_s = time.time()
    for later_s, found in ((599.0, FOUND), (601.0, None), (-60.0, None)):  # the clock was set back
        monkeypatch.setattr("time.time", lambda at_s=now_s + later_s: at_s)
        assert find_served(tmp_path, HERE) == found


def test_the_newest_servers_are_stored(tmp_path: Path) -> None:
    for port in range(MOST_SERVERS + 3):
        store_served(tmp_path, ClusterConfig(host=f"https://lab:{port}"), FOUND)
    stored = json.loads((tmp_path / SERVED_FILE).read_bytes())
    assert len(stored) == MOST_SERVERS
    assert find_served(tmp_path, ClusterConfig(host="https://lab:0")) is None


def test_an_api_group_without_an_answer_is_not_cached(tmp_path: Path) -> None:
    store_served(tmp_path, HERE, ServedKinds({"batch/v1": None}))
    assert find_served(tmp_path, HERE) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store_served(tmp_path / "file", HERE, FOUND)
    assert find_served(tmp_path / "file", HERE) is None


@given(content=st.binary(max_size=200) | st.sampled_from([b'{"x": {"at_s": 1}}', b"[" * 9000]))
def test_a_damaged_file_counts_as_empty(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / SERVED_FILE).write_bytes(content)
    assert find_served(folder, HERE) is None
    store_served(folder, HERE, FOUND)
    assert find_served(folder, HERE) == FOUND
