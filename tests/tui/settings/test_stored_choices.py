"""Stored theme, layouts and answers about kinds: found again, private, harmless if damaged."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.cluster.discovery import ServedKinds
from k8s.text.errors import KubeError
from tui.settings.served_kinds import MOST_SERVERS, SERVED_FILE, find_served, store_served
from tui.settings.stored_choices import (
    LAYOUTS_FILE,
    MAX_CONTEXTS,
    THEME_FILE,
    StoredLayouts,
    read_theme,
    store_theme,
)


def test_a_layout_stored_per_context_is_restored(tmp_path: Path) -> None:
    assert StoredLayouts(tmp_path).find("lab") == ""
    assert StoredLayouts(tmp_path).store("lab", "list")
    assert StoredLayouts(tmp_path).store("farm", "full")
    assert (StoredLayouts(tmp_path).find("lab"), StoredLayouts(tmp_path).find("farm")) == ("list", "full")
    assert (tmp_path / LAYOUTS_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"lab": 7}', "[" * 100_000])
def test_a_malformed_layouts_file_is_treated_as_missing_and_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / LAYOUTS_FILE).write_text(text)
    kept = StoredLayouts(tmp_path)
    assert kept.find("lab") == ""
    assert kept.store("lab", "list") and StoredLayouts(tmp_path).find("lab") == "list"


def test_an_unwritable_layout_choice_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = StoredLayouts(tmp_path / "file")
    assert not kept.store("lab", "list") and kept.find("lab") == "list"
    assert StoredLayouts().store("lab", "list")


def test_the_oldest_layout_choices_are_dropped(tmp_path: Path) -> None:
    kept = StoredLayouts(tmp_path)
    for number in range(MAX_CONTEXTS + 1):
        kept.store(f"context-{number}", "list")
    assert (kept.find("context-0"), kept.find("context-1")) == ("", "list")


def test_without_a_stored_choice_the_configured_theme_applies(tmp_path: Path) -> None:
    assert read_theme(tmp_path, "") == ""
    assert read_theme(tmp_path, "light") == "light"


def test_the_latest_stored_theme_overrides_the_configured_theme(tmp_path: Path) -> None:
    store_theme(tmp_path / "state", "dark", "light")
    assert read_theme(tmp_path / "state", "light") == "dark"
    store_theme(tmp_path / "state", "safe", "light")
    assert read_theme(tmp_path / "state", "light") == "safe"
    assert [path.name for path in (tmp_path / "state").iterdir()] == [THEME_FILE]
    assert stat.S_IMODE((tmp_path / "state" / THEME_FILE).stat().st_mode) == 0o600


def test_a_theme_configured_later_overrides_the_stored_choice(tmp_path: Path) -> None:
    store_theme(tmp_path, "dark", "")
    assert read_theme(tmp_path, "contrast") == "contrast"
    store_theme(tmp_path, "safe", "contrast")
    assert read_theme(tmp_path, "contrast") == "safe"
    assert read_theme(tmp_path, "") == "safe"  # a config that names none has nothing against it


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"theme": "dark"}', '{"theme": 1, "config_theme": "light"}', "[" * 9999],
)
def test_a_malformed_theme_file_is_treated_as_missing_and_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / THEME_FILE).write_text(content)
    assert read_theme(tmp_path, "light") == "light"
    store_theme(tmp_path, "safe", "light")
    assert read_theme(tmp_path, "light") == "safe"


def test_an_unreadable_theme_file_is_treated_as_missing(tmp_path: Path) -> None:
    (tmp_path / THEME_FILE).mkdir()
    assert read_theme(tmp_path, "light") == "light"


def test_an_unwritable_theme_choice_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(KubeError, match=r"theme could not be saved\.\n.*theme\.json: File exists\."):
        store_theme(tmp_path / "state", "dark", "")


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
