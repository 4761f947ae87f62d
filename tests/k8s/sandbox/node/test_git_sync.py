"""The stand-in for git-sync: commits, branches, credentials, errors."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from k8s.sandbox.node.programs import PROGRAMS

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git: apt-get install git")
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(at: Path, *words: str) -> str:
    """Run git in a folder as a named user; return its output."""
    name = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *name, *words], cwd=at, env=os.environ | _ALONE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(repository: Path, text: str) -> str:
    """Commit a file that says `text`; return the commit."""
    (repository / "said.txt").write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", text)
    return git(repository, "rev-parse", "HEAD")


def make_repository(at: Path) -> Path:
    at.mkdir()
    git(at, "init", "-q", "-b", "main")
    commit(at, "first")
    return at


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "net")


def sync(root: Path, repo: str, *, words: Iterable[str] = (), **variables: str) -> tuple[int, str]:
    """Run git-sync once; return its exit status and what it says."""
    env = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "TMPDIR": str(root.parent), **_ALONE}
    env |= {"GIT_SYNC_REPO": repo, "GIT_SYNC_ROOT": str(root), "GIT_SYNC_ONE_TIME": "true"}
    env |= {"GIT_SYNC_BRANCH": "main", **variables}
    done = subprocess.run(
        [*PROGRAMS["git-sync"], *words], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


def test_a_login_in_the_repository_url_is_not_logged(tmp_path: Path) -> None:
    status, said = sync(tmp_path / "code", "https://li:s3cr3t@127.0.0.1:1/team/code.git")
    assert status == 1 and "git clone of https://127.0.0.1:1/team/code.git" in said
    assert "s3cr3t" not in said


def test_a_branch_is_fetched_and_a_second_sync_gets_its_new_commits(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    assert sync(root, f"file://{repository}") == (
        0,
        f"file://{repository}: main is at {git(repository, 'rev-parse', 'HEAD')}\n",
    )
    link = root / "net"
    assert (link / "said.txt").read_text() == "first"
    assert link.readlink() == Path(git(repository, "rev-parse", "HEAD")), "also where it is mounted elsewhere"
    second = commit(repository, "second")
    assert sync(root, f"file://{repository}")[0] == 0
    assert (link / "said.txt").read_text() == "second"
    assert git(link, "rev-parse", "HEAD") == second
    assert len([each for each in root.iterdir() if each.name not in (".git", "net")]) == 1, "no old commit"
    assert sync(root, f"file://{repository}") == (0, ""), "nothing is new"


def test_a_commit_or_a_tag_is_taken_though_the_branch_went_on(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1")
    commit(repository, "second")
    for index, rev in enumerate((first, first[:9], "v1")):
        root = tmp_path / f"code-{index}"
        assert sync(root, str(repository), GIT_SYNC_REV=rev, GIT_SYNC_DEST="here")[0] == 0
        assert (root / "here" / "said.txt").read_text() == "first"


def test_submodules_come_along_unless_they_are_off(repository: Path, tmp_path: Path) -> None:
    part = make_repository(tmp_path / "part")
    git(repository, "submodule", "--quiet", "add", f"file://{part}", "part")
    git(repository, "commit", "-qm", "part")
    allowed = {"GIT_ALLOW_PROTOCOL": "file"}
    assert sync(tmp_path / "a", str(repository), **allowed)[0] == 0
    assert (tmp_path / "a" / "net" / "part" / "said.txt").read_text() == "first"
    assert sync(tmp_path / "b", str(repository), GIT_SYNC_SUBMODULES="off", **allowed)[0] == 0
    assert not (tmp_path / "b" / "net" / "part" / "said.txt").exists()
    status, why = sync(tmp_path / "c", str(repository))
    assert status == 1 and "transport 'file' not allowed" in why


@pytest.mark.parametrize("sandbox", ["", "elsewhere", "code"])
def test_a_folder_of_this_machine_is_never_emptied(repository: Path, tmp_path: Path, sandbox: str) -> None:
    root = tmp_path / "code"
    root.mkdir()
    (root / "thesis.tex").write_text("years")
    variables = {"GPUCONSOLE_SANDBOX": str(tmp_path / sandbox)} if sandbox else {}
    status, said = sync(root, str(repository), **variables)
    assert status == 1
    assert f"git-sync empties {root} before it clones" in said
    assert [each.name for each in root.iterdir()] == ["thesis.tex"]


def test_a_link_that_led_to_another_folder_leaves_it_as_it_is(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    assert sync(root, str(repository))[0] == 0
    mine = make_repository(tmp_path / "mine")
    (root / "net").unlink()
    (root / "net").symlink_to(mine)
    assert sync(root, str(repository))[0] == 0
    assert (mine / "said.txt").read_text() == "first"


def test_a_half_finished_earlier_sync_is_replaced(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "code"
    (root / ".git").mkdir(parents=True)
    (root / "junk").write_text("")
    (root / "net").symlink_to("nowhere")
    assert sync(root, str(repository), GPUCONSOLE_SANDBOX=str(tmp_path))[0] == 0
    assert (root / "net" / "said.txt").read_text() == "first"
    assert not (root / "junk").exists()


@pytest.mark.parametrize(
    ("variables", "words", "why"),
    [
        ({"GIT_SYNC_BRANCH": "nope"}, (), "Remote branch nope not found in upstream origin"),
        ({"GIT_SYNC_BRANCH": ""}, (), "Without a branch git-sync takes master: name another one"),
        ({"GIT_SYNC_REV": "0123456789abcdef0123456789abcdef01234567"}, (), "git rev-parse of"),
        ({"GIT_SYNC_REPO": "/no/such/place"}, (), "repository '/no/such/place' does not exist"),
        ({"GIT_SYNC_REPO": ""}, (), "which repository?"),
        ({"GIT_SYNC_REPO": "fd::17"}, (), "Such a URL can run programs"),
        ({"GIT_SYNC_REPO": "ext::sh -c touch% /tmp/x"}, (), "Such a URL can run programs"),
        ({}, ("--exechook-command=true",), "reads variables only, not --exechook-command"),
        ({"GIT_SYNC_SSH": "true", "GIT_SSH_KEY_FILE": "/no/key"}, (), "No such file or directory: '/no/key'"),
        ({"PATH": "/nowhere"}, (), "Install git (apt-get install git)"),
    ],
)
def test_errors_are_in_the_log_and_the_termination_message(
    repository: Path, tmp_path: Path, variables: dict[str, str], words: tuple[str, ...], why: str
) -> None:
    last = tmp_path / "last"
    given = {"GIT_SYNC_REPO": str(repository), **variables, "GPUCONSOLE_TERMINATION_LOG": str(last)}
    status, said = sync(tmp_path / "code", given.pop("GIT_SYNC_REPO"), words=words, **given)
    assert status == 1
    assert why in said
    assert said == f"git-sync: {last.read_text()}\n"


class _Private(SimpleHTTPRequestHandler):
    """HTTP server of files behind a password."""

    def do_GET(self) -> None:
        wanted = base64.b64encode(b"li:s3cret").decode()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder to those who know the password; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Private, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_private_repository_requires_a_login(repository: Path, tmp_path: Path) -> None:
    git(repository, "update-server-info")
    with serving(tmp_path) as address:
        fetch = partial(sync, repo=f"{address}/net/.git", GIT_SYNC_DEST="net")
        wrong = fetch(tmp_path / "a", GIT_SYNC_USERNAME="li", GIT_SYNC_PASSWORD="other")
        alone = fetch(tmp_path / "b")
        right = fetch(tmp_path / "c", GIT_SYNC_USERNAME="li", GIT_SYNC_PASSWORD="s3cret")
    assert wrong[0] == 1 and "Authentication failed" in wrong[1] and "other" not in wrong[1]
    assert alone[0] == 1 and "Authentication failed" in alone[1]
    assert right[0] == 0, right
    assert (tmp_path / "c" / "net" / "said.txt").read_text() == "first"
