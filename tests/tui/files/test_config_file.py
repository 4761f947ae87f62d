"""The user's config.yaml: what it sets, and what is said of one that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.errors import KubeError
from tui.files.config_file import Config, keep_theme, read_config


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert read_config(tmp_path / "config.yaml") == Config()
    assert read_config(written(tmp_path, "# nothing yet\n")) == Config()


def test_further_accelerators_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "accelerators:\n- example.com/npu-*\n- other.com/x\n")
    assert read_config(path) == Config(accelerators=("example.com/npu-*", "other.com/x"))


@pytest.mark.parametrize(("text", "days"), [("7", 7.0), ("0.5", 0.5), ("36500", 36500.0)])
def test_how_long_finished_jobs_are_shown_is_read(tmp_path: Path, text: str, days: float) -> None:
    assert read_config(written(tmp_path, f"finished_days: {text}\n")) == Config(finished_days=days)


def test_a_key_that_is_no_setting_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "accelerators: [a.com/b]\nacelerators: [c.com/d]\n? [x]\n: 1\n")
    assert read_config(path) == Config(
        ("a.com/b",), ("acelerators (line 2)", "a key of several parts (line 3)")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accelerators: example.com/npu\n", "line 1, accelerators: a list of resource names is expected."),
        ("x: 1\naccelerators:\n- a.com/b\n- 5\n", "line 4, accelerators: a resource name is expected"),
        ("accelerators: ['']\n", "line 1, accelerators: a resource name is expected"),
        ("accelerators: [[a]]\n", "line 1, accelerators: a resource name is expected"),
        ("accelerators:\n- '*'\n", "line 2, accelerators: * matches resources that are no GPUs."),
        ("theme: [dark]\n", "line 1, theme: the name of a theme is expected, as dark."),
        ("a: 1\ntheme:\n", "line 2, theme: the name of a theme is expected"),
        ("a: 1\nfinished_days: 0\n", "line 2, finished_days: a number of days is expected, more than 0"),
        ("finished_days: -1\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: .nan\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: .inf\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: soon\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days:\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: [7]\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: '7'\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: !!int soon\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: true\n", "line 1, finished_days: a number of days is expected"),
        ("- accelerators\n", "line 1: keys and values are expected"),
        ("a: 1\nb: [1\n", "line 3: "),
        ("a: \x01\n", "line 1: this is no YAML."),
    ],
)
def test_what_makes_no_sense_is_refused_with_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(KubeError) as refused:
        read_config(path)
    assert f"{path}, {words}" in str(refused.value)
    assert "Correct the file" in refused.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KubeError, match=r"config\.yaml cannot be read"):
        read_config(path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(KubeError, match="folder cannot be read"):
        read_config(tmp_path / "folder")


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("any"), text)
    try:
        assert isinstance(read_config(path), Config)
    except KubeError as refused:
        assert str(path) in str(refused)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "theme: dark\n"),
        ("# nothing yet\n", "# nothing yet\ntheme: dark\n"),
        ("# no line end", "# no line end\ntheme: dark\n"),
        ("accelerators: [a.com/b]  # mine", "accelerators: [a.com/b]  # mine\ntheme: dark\n"),
        ("accelerators:\n- a.com/b\n# end\n", "accelerators:\n- a.com/b\n# end\ntheme: dark\n"),
        ("theme: light # by day\nx: 1\n", "theme: dark # by day\nx: 1\n"),
        ("theme: 'light'\n", "theme: dark\n"),
        ("theme: light\ntheme: safe\n", "theme: light\ntheme: dark\n"),
        ("---\n  x: 1\n...\n", "---\n  x: 1\n  theme: dark\n...\n"),
        ("{theme: light, x: 1}\n", "{theme: dark, x: 1}\n"),
        ("x: 1\r\n# end\r\n", "x: 1\r\n# end\r\ntheme: dark\n"),
    ],
)
def test_the_theme_is_kept_and_every_other_line_stays(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(before.encode())
    keep_theme(path, "dark")
    assert path.read_bytes() == after.encode()
    assert read_config(path).theme == "dark"


def test_a_name_that_yaml_reads_otherwise_is_quoted(tmp_path: Path) -> None:
    keep_theme(tmp_path / "config.yaml", "1e3")
    keep_theme(tmp_path / "config.yaml", "true")
    assert read_config(tmp_path / "config.yaml").theme == "true"


def test_a_new_config_is_the_users_alone_and_an_old_one_stays_what_it_is(tmp_path: Path) -> None:
    new, old = tmp_path / "new" / "config.yaml", tmp_path / "dotfiles.yaml"
    keep_theme(new, "safe")
    assert new.stat().st_mode & 0o777 == 0o600 and new.parent.stat().st_mode & 0o777 == 0o700
    old.write_text("x: 1\n")
    old.chmod(0o644)
    (tmp_path / "config.yaml").symlink_to(old)
    keep_theme(tmp_path / "config.yaml", "safe")
    assert (tmp_path / "config.yaml").is_symlink()
    assert old.read_text() == "x: 1\ntheme: safe\n" and old.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "dotfiles.yaml", "new"]


@pytest.mark.parametrize("text", ["{x: 1}\n", "x: &a light\ntheme: *a\n", "- x\n", "x: [\n"])
def test_a_file_that_a_line_cannot_be_put_into_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(KubeError, match=r"config\.yaml"):
        keep_theme(path, "dark")
    assert path.read_text() == text


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KubeError, match=r"config\.yaml cannot be"):
        keep_theme(tmp_path / "file" / "config.yaml", "dark")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("theme: x#\n-[]{}'\"&*.\t"), max_size=40))
def test_a_theme_is_kept_in_any_config_or_the_config_is_left(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = written(tmp_path_factory.mktemp("any"), text)
    try:
        before = read_config(path)
        keep_theme(path, "dark")
    except KubeError:
        assert path.read_text(encoding="utf-8") == text.replace("\r\n", "\n")
    else:
        after = read_config(path)
        assert (after.theme, after.accelerators) == ("dark", before.accelerators)
