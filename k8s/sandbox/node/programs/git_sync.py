"""Stand-in for git-sync v3: a repository at one commit behind a link, fetched once with this machine's git.

The clone is in ROOT, each commit in a folder of that name beside it, and the link DEST leads to the newest.
Options are variables only. Source: kubernetes/git-sync v3.6.9, `cmd/git-sync/main.go`.

Started as `python -I -S git_sync.py`; needs only the standard library and git.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

DEFAULTS: Mapping[str, str] = {
    "GIT_SYNC_REPO": "",
    "GIT_SYNC_BRANCH": "master",
    "GIT_SYNC_REV": "HEAD",
    "GIT_SYNC_DEPTH": "0",
    "GIT_SYNC_SUBMODULES": "recursive",
    "GIT_SYNC_ROOT": "",
    "GIT_SYNC_DEST": "",
    "GIT_SYNC_TIMEOUT": "120",
    "GIT_SYNC_USERNAME": "",
    "GIT_SYNC_PASSWORD": "",
    "GIT_SYNC_SSH": "false",
    "GIT_SSH_KEY_FILE": "/etc/git-secret/ssh",
    "GIT_KNOWN_HOSTS": "true",
    "GIT_SSH_KNOWN_HOSTS_FILE": "/etc/git-secret/known_hosts",
}
_TRUE = frozenset(("1", "t", "true"))
# A credential helper that reads variables, so that no process list shows the password.
_LOGIN = '!f() { echo "username=$GIT_SYNC_USERNAME"; echo "password=$GIT_SYNC_PASSWORD"; }; f'
# May be a token, so messages leave it out.
_LOGIN_IN_URL = re.compile(r"^(https?://)[^/]*@")
_NOT_INSTALLED = (
    "git is not installed on this machine, and the sandbox ignores images, so it cannot fetch code. "
    "Install git (apt-get install git)."
)
_NOT_EMPTY = (
    "git-sync empties {0} before it clones. In the sandbox that is a folder of this machine, with files "
    "in it: mount a volume there, or name an empty folder (GIT_SYNC_ROOT)."
)
NO_BRANCH = "Without a branch git-sync takes master: name another one (--sync-branch)."


class CannotSync(Exception):
    """Error that kept the repository from being fetched; the message is for the job's owner."""


def main(*arguments: str) -> int:
    """Fetch the repository; return the exit status."""
    options = {name: os.environ.get(name) or default for name, default in DEFAULTS.items()}
    try:
        if arguments:
            option = arguments[0].partition("=")[0]
            raise CannotSync(f"the sandbox's git-sync reads variables only, not {option}")
        if not options["GIT_SYNC_REPO"]:
            raise CannotSync("GIT_SYNC_REPO is not set: which repository?")
        if re.match(r"\s*[\w.+-]+::", options["GIT_SYNC_REPO"]):
            raise CannotSync("Such a URL can run programs: use https, ssh or git@host:path.")
        if shutil.which("git") is None:
            raise CannotSync(_NOT_INSTALLED)
        Repository(options).sync()
    except (CannotSync, OSError, ValueError) as error:
        _fail(str(error))
        return 1
    return 0


class Repository:
    """Clone of a repository and the link to its current commit."""

    def __init__(self, options: Mapping[str, str]) -> None:
        home = os.environ.get("HOME", "")
        name = options["GIT_SYNC_REPO"].strip("/").split("/")[-1]
        self._address = _LOGIN_IN_URL.sub(r"\1", options["GIT_SYNC_REPO"])
        self._options = options
        self._root = Path(options["GIT_SYNC_ROOT"] or f"{home}/git")
        self._link = self._root / (options["GIT_SYNC_DEST"] or name)
        self._env = git_environment(options, os.environ)

    def sync(self) -> None:
        """Fetch the branch and point the link at its newest commit.

        Raises:
            CannotSync: A git command failed.
        """
        options = self._options
        if not self._link.joinpath(".git").exists():
            self._clone()
            commit = self._git("rev-parse", f"{options['GIT_SYNC_REV']}^{{commit}}", at=self._root)
        else:
            self._git(
                "fetch", "-f", "--tags", *self._depth(), "origin", options["GIT_SYNC_BRANCH"], at=self._root
            )
            rev = "FETCH_HEAD" if options["GIT_SYNC_REV"] == "HEAD" else options["GIT_SYNC_REV"]
            commit = self._git("rev-parse", f"{rev}^{{commit}}", at=self._root)
        if os.path.basename(os.path.realpath(self._link)) == commit:
            return
        self._check_out(commit)
        print(f"{self._address}: {options['GIT_SYNC_BRANCH']} is at {commit}", file=sys.stderr, flush=True)

    def _clone(self) -> None:
        # What a run before this one left there is in the way.
        self._root.mkdir(parents=True, exist_ok=True)
        if any(self._root.iterdir()) and not is_in_sandbox(self._root):
            raise CannotSync(_NOT_EMPTY.format(self._root))
        for each in self._root.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        options = self._options
        arguments = ("clone", "--quiet", "--no-checkout", "-b", options["GIT_SYNC_BRANCH"], *self._depth())
        try:
            self._git(*arguments, options["GIT_SYNC_REPO"], str(self._root), at=self._root)
        except CannotSync as error:
            is_default = options["GIT_SYNC_BRANCH"] == DEFAULTS["GIT_SYNC_BRANCH"]
            if is_default and "Remote branch" in str(error):
                raise CannotSync(f"{error} {NO_BRANCH}") from None
            raise

    def _check_out(self, commit: str) -> None:
        folder = self._root / commit
        shutil.rmtree(folder, ignore_errors=True)
        self._git("worktree", "prune", at=self._root)
        self._git("worktree", "add", "--detach", "--no-checkout", str(folder), commit, at=self._root)
        # Other containers have this folder by another name.
        (folder / ".git").write_text(f"gitdir: ../.git/worktrees/{commit}\n")
        self._git("reset", "--quiet", "--hard", commit, at=folder)
        if self._options["GIT_SYNC_SUBMODULES"] != "off":
            is_deep = self._options["GIT_SYNC_SUBMODULES"] == "recursive"
            arguments = ("submodule", "--quiet", "update", "--init", *(("--recursive",) if is_deep else ()))
            self._git(*arguments, *self._depth(), at=folder)
        old = self._link.resolve()
        self._link.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._link.with_name(f".{self._link.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(folder, self._link.parent))
        fresh.replace(self._link)
        if old.parent == self._root.resolve() and old.name not in (commit, self._link.name):
            shutil.rmtree(old, ignore_errors=True)

    def _depth(self) -> tuple[str, ...]:
        depth = int(self._options["GIT_SYNC_DEPTH"])
        return ("--depth", str(depth)) if depth else ()

    def _git(self, *arguments: str, at: Path) -> str:
        limit_s = float(self._options["GIT_SYNC_TIMEOUT"]) or None
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=at,
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CannotSync(
                f"git {arguments[0]} took longer than {limit_s:g} s (GIT_SYNC_TIMEOUT)"
            ) from None
        errors = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode:
            lines = [line for line in errors.splitlines() if line.startswith(("fatal:", "error:", "remote:"))]
            why = " ".join(lines or errors.splitlines()[-1:]) or f"it exited with {done.returncode}"
            raise CannotSync(f"git {arguments[0]} of {self._address}: {why}")
        return done.stdout.decode("utf-8", "replace").strip()


def git_environment(options: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git: credentials and configuration, and never a prompt.

    Raises:
        OSError: The file with the key cannot be read.
    """
    found = {**env, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
    settings = [("gc.auto", "0"), ("advice.detachedHead", "false")]
    if options["GIT_SYNC_USERNAME"]:
        settings.append(("credential.helper", _LOGIN))
    if options["GIT_SYNC_SSH"].lower() in _TRUE:
        found["GIT_SSH_COMMAND"] = _ssh(options)
    for index, (key, value) in enumerate(settings):
        found |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return found | {"GIT_CONFIG_COUNT": str(len(settings))}


def is_in_sandbox(folder: Path) -> bool:
    """Return True if a folder belongs to the sandbox; everything else on this machine is the user's."""
    sandbox = os.environ.get("GPUCONSOLE_SANDBOX", "")
    return bool(sandbox) and Path(sandbox).resolve() in folder.resolve().parents


def _ssh(options: Mapping[str, str]) -> str:
    # ssh refuses a key that others may read, as a mounted Secret's files may be: use a copy.
    key = Path(os.environ.get("TMPDIR", "/tmp")) / "git-sync-key"
    key.touch(0o600)
    key.write_bytes(Path(options["GIT_SSH_KEY_FILE"]).read_bytes())
    known = (
        f'UserKnownHostsFile="{options["GIT_SSH_KNOWN_HOSTS_FILE"]}"'
        if options["GIT_KNOWN_HOSTS"].lower() in _TRUE
        else "StrictHostKeyChecking=no"
    )
    return shlex.join(("ssh", "-o", known, "-o", "BatchMode=yes", "-i", str(key)))


def _fail(why: str) -> None:
    print(f"git-sync: {why}", file=sys.stderr, flush=True)
    if message_file := os.environ.get("GPUCONSOLE_TERMINATION_LOG"):
        with suppress(OSError), open(message_file, "w") as file:
            file.write(why)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
