"""Bring a job's code and files into its pods: an init container that fetches, and volumes.

Code from git works as with Arena (charts pytorchjob 0.5.2, mpijob 0.28.0): git-sync runs once and
leaves the repository in `code/` of the working directory. Credentials come from Secrets, never
from the manifest.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from k8s.kinds import job_spec as job_specs

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

# Runs as `sh -c CLONE sh FOLDER` with git-sync's variables. A requested commit that cannot be checked out
# is an error; if a branch cannot be updated, the job goes on with the folder as it is.
CLONE = r"""
set -eu
dir=$1 lock=$1.lock above=$(dirname "$1") rev=${GIT_SYNC_REV:-} branch=${GIT_SYNC_BRANCH:-} alive=
say() { echo "$dir: $1" >&2; }
export HOME="$(mktemp -d)" GIT_TERMINAL_PROMPT=0
trap 'kill $alive 2>/dev/null; rm -rf "$HOME"' EXIT
trap 'exit 1' TERM INT
git config --global --add safe.directory '*'
if [ -n "${GIT_SYNC_PASSWORD:-}" ]; then
    git config --global credential.helper \
        '!f() { echo "username=${GIT_SYNC_USERNAME:-}"; echo "password=$GIT_SYNC_PASSWORD"; }; f'
fi
if [ -n "${GIT_SYNC_SSH:-}" ]; then
    options="-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    export KEY=/etc/git-secret/ssh GIT_SSH_COMMAND="ssh -i \"\$KEY\" $options"
fi
mkdir -p "$above"
[ -w "$above" ] || { say "cannot write to $above"; exit 1; }
until mkdir "$lock" 2>/dev/null; do
    # Whoever holds it touches it each minute: an old one was left by a pod that was killed.
    [ -z "$(find "$lock" -maxdepth 0 -mmin +5 2>/dev/null)" ] || rmdir "$lock" 2>/dev/null || :
    sleep 1
done
trap 'kill $alive 2>/dev/null; rmdir "$lock" 2>/dev/null; rm -rf "$HOME"' EXIT
while sleep 60 && kill -0 $$; do touch -c "$lock"; done >/dev/null 2>&1 &
alive=$!
if [ ! -e "$dir/.git" ]; then
    if [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
        say "not cloned: it is not empty, and no repository"
        exit 1
    fi
    rm -rf "$dir.new"
    git clone --quiet --recurse-submodules ${branch:+--branch "$branch"} "$GIT_SYNC_REPO" "$dir.new"
    [ -z "$rev" ] || git -C "$dir.new" checkout --quiet --detach --recurse-submodules "$rev"
    [ ! -d "$dir" ] || rmdir "$dir"
    mv "$dir.new" "$dir"
    say "cloned, at $(git -C "$dir" rev-parse --short HEAD)"
    exit
fi
cd "$dir"
# Whoever cloned it by hand may have a token in its address.
held=$(git config --get remote.origin.url | sed 's#^\(https\{0,1\}://\)[^/]*@#\1#')
[ "$held" = "$GIT_SYNC_REPO" ] || { say "holds another repository: $held"; exit 1; }
git fetch --quiet --tags origin
if [ -n "$rev" ]; then
    new=$(git rev-parse --verify --quiet "$rev^{commit}") || { say "there is no commit $rev"; exit 1; }
else
    git fetch --quiet origin "${branch:-HEAD}"
    new=$(git rev-parse 'FETCH_HEAD^{commit}')
fi
old=$(git rev-parse HEAD)
keep() {
    say "not updated: $1; it stays at $(git rev-parse --short HEAD)"
    [ -z "$rev" ] || exit 1
    exit 0
}
[ "$old" != "$new" ] || { say "up to date, at $(git rev-parse --short HEAD)"; exit; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || keep "there are local changes"
[ -z "$(git rev-list --max-count=1 HEAD --not --remotes --tags "$new")" ] || keep "there are local commits"
git checkout --quiet --detach --recurse-submodules "$new" || keep "git could not check out the new commit"
say "updated, at $(git rev-parse --short HEAD)"
"""
GIT_IMAGE = "registry.k8s.io/git-sync/git-sync:v3.6.9"
RSYNC_IMAGE = "instrumentisto/rsync-ssh:alpine"
CODE_KEY = "code.tar.gz"
# Python imports from the zip archive as from a folder.
TRAINER_KEY = "trainer.zip"
TRAINER_FOLDER = "/opt/gpuconsole"
TRAINER_PATH = f"{TRAINER_FOLDER}/{TRAINER_KEY}"
# Python runs a `sitecustomize` on PYTHONPATH before any program.
DEBUG_KEY, DEBUG_FOLDER = "sitecustomize.py", "/opt/gpuconsole/debuggable"
# Working directory of fetched code if the job names none. Source: Arena.
HOME = "/root"
# Keys of Secrets for git, as in `kubernetes.io/ssh-auth` and `kubernetes.io/basic-auth`.
SSH_KEY, USERNAME, PASSWORD = "ssh-privatekey", "username", "password"
ALLOWED_PROTOCOLS = "GIT_ALLOW_PROTOCOL"
# Prefix of variables that only git-sync reads.
GIT_PREFIX = "GIT_SYNC_"
_CODE, _ARCHIVE, _GIT_SECRET = "/code", "/archive", "/etc/git-secret"
_SSH_URL = re.compile(r"ssh://.*|[\w.-]+@[\w.-]+:.*")
# User and password of a URL, which may still be incomplete while it is typed.
_LOGIN = re.compile(r"([A-Za-z][\w+.-]*://)([^/?#]*)@")
_UNFIT_FOR_KEY = re.compile(r"[^A-Za-z0-9._-]+")
Part = dict[str, Any]


def clone_command(spec: JobSpec) -> list[str]:
    """Return the argv of the container that clones."""
    return ["sh", "-c", CLONE, "sh", spec.sync_path]


def code_config_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's local folder."""
    return f"{job}-code"


def files_config_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's config files."""
    return f"{job}-files"


def trainer_config_name(job: str) -> str:
    """Return the name of the ConfigMap with the packaged trainers."""
    return f"{job}-trainer"


def debug_config_name(job: str) -> str:
    """Return the name of the ConfigMap that lets `diagnose` ask a job's own programs."""
    return f"{job}-debuggable"


def is_brought(spec: JobSpec) -> bool:
    """Return True if a job gets what makes it debuggable; a packaged trainer has it."""
    return spec.debuggable and not spec.trainer


def git_secret_name(job: str) -> str:
    """Return the name of the Secret created for a job's repository."""
    return f"{job}-git"


def file_key(index: int, path: str) -> str:
    """Return the key of a config file in its ConfigMap; `index` distinguishes equal file names."""
    return f"{index}-{_UNFIT_FOR_KEY.sub('_', posixpath.basename(path))}"


def code_folder(spec: JobSpec) -> str:
    """Return the folder of the code in the pods."""
    return posixpath.join(spec.working_dir or HOME, "code")


def credentials_in(spec: JobSpec) -> dict[str, str]:
    """Return the credentials in the URL and variables of a spec, by the Secret's keys."""
    if spec.sync_mode != "git":
        return {}
    found = {}
    if (url := _LOGIN.match(spec.sync_source)) and not _SSH_URL.fullmatch(spec.sync_source):
        user, _, password = url[2].partition(":")
        found = {USERNAME: unquote(user), PASSWORD: unquote(password)}
    found |= {
        key: spec.env[name]
        for name, key in (("GIT_SYNC_USERNAME", USERNAME), ("GIT_SYNC_PASSWORD", PASSWORD))
        if name in spec.env
    }
    return {key: value for key, value in found.items() if value}


def own_environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of the training container, without git-sync's.

    A packaged trainer, or what makes a job debuggable, comes first in PYTHONPATH.
    """
    is_git = spec.sync_mode == "git"
    found = {name: value for name, value in spec.env.items() if not (is_git and name.startswith(GIT_PREFIX))}
    first = TRAINER_PATH if spec.trainer else DEBUG_FOLDER if is_brought(spec) else ""
    if first:
        paths = found.get("PYTHONPATH", "").split(":")
        found["PYTHONPATH"] = ":".join([first, *(path for path in paths if path not in ("", first))])
    return found


def add_code(pod: Part, container: Part, spec: JobSpec) -> None:
    """Add to a pod and its training container what brings the code and files of a job.

    The content is in objects created with the job: see `k8s.jobs.owned_objects`.
    """
    if spec.sync_mode == "git" and spec.sync_path:
        _add_clone(pod, container, spec)
    elif spec.sync_mode:
        _add_sync(pod, container, spec)
    if spec.config_files:
        _add_volume(pod, {"name": "job-files", "configMap": {"name": files_config_name(spec.name)}})
        for index, file in enumerate(spec.config_files):
            key = file_key(index, file.path)
            _mount(container, "job-files", file.path, subPath=key, readOnly=True)
    if spec.trainer:
        _add_volume(pod, {"name": "trainer", "configMap": {"name": trainer_config_name(spec.name)}})
        _mount(container, "trainer", TRAINER_FOLDER, readOnly=True)
    if is_brought(spec):
        _add_volume(pod, {"name": "debuggable", "configMap": {"name": debug_config_name(spec.name)}})
        _mount(container, "debuggable", DEBUG_FOLDER, readOnly=True)


def _add_clone(pod: Part, container: Part, spec: JobSpec) -> None:
    # A pod that does not mount the volume, such as a launcher, gets no code.
    container.setdefault("workingDir", spec.sync_path)
    mounts = [
        each
        for each in container.get("volumeMounts") or ()
        if job_specs.is_below(spec.sync_path, each["mountPath"]) and not each.get("readOnly")
    ]
    if not mounts:
        return
    init = _git_container(pod, container, spec)
    init["command"] = clone_command(spec)
    init.setdefault("volumeMounts", []).insert(0, max(mounts, key=lambda each: len(each["mountPath"])))
    if spec.run_as_user is None:
        init["securityContext"] = {"runAsUser": 0}  # the default image's user cannot write to a new volume
    pod.setdefault("initContainers", []).append(init)


def _add_sync(pod: Part, container: Part, spec: JobSpec) -> None:
    if spec.sync_mode == "git":
        init = _git_container(pod, container, spec)
    elif spec.sync_mode == "rsync":
        init = _fetching(container, spec, RSYNC_IMAGE)
        init["command"] = ["rsync", "-avP", spec.sync_source, _CODE]
    else:
        init = _fetching(container, spec, spec.image)
        init["command"] = ["tar", "xzf", posixpath.join(_ARCHIVE, CODE_KEY), "-C", _CODE]
    init.setdefault("volumeMounts", []).insert(0, {"name": "code-sync", "mountPath": _CODE})
    _add_volume(pod, {"name": "code-sync", "emptyDir": {}})
    if spec.sync_mode == "folder":
        _mount(init, "code-archive", _ARCHIVE, readOnly=True)
        _add_volume(pod, {"name": "code-archive", "configMap": {"name": code_config_name(spec.name)}})
    container.setdefault("workingDir", HOME)
    _mount(container, "code-sync", code_folder(spec))
    pod.setdefault("initContainers", []).append(init)


def _fetching(container: Part, spec: JobSpec, image: str) -> Part:
    # Cores and memory as for training; the caller adds the command.
    init: Part = {"name": "init-code", "image": spec.sync_image or image}
    if spec.pull_policy:
        init["imagePullPolicy"] = spec.pull_policy
    if resources := _without_devices(container.get("resources") or {}):
        init["resources"] = resources
    return init


def _git_container(pod: Part, container: Part, spec: JobSpec) -> Part:
    init = _fetching(container, spec, GIT_IMAGE)
    init["env"] = _git_environment(spec)
    if _uses_ssh(spec) and spec.git_secret:
        # The default image runs as its own user, who could not read a key of root.
        is_root = bool(spec.sync_image) or (bool(spec.sync_path) and spec.run_as_user is None)
        items = [{"key": SSH_KEY, "path": "ssh"}]
        secret = {"secretName": spec.git_secret, "items": items, "defaultMode": 0o400 if is_root else 0o444}
        _add_volume(pod, {"name": "git-secret", "secret": secret})
        _mount(init, "git-secret", _GIT_SECRET, readOnly=True)
    return init


def _git_environment(spec: JobSpec) -> list[Part]:
    repository = strip_credentials(spec.sync_source)
    fields = {
        "GIT_SYNC_REPO": repository,
        "GIT_SYNC_DEST": spec.env.get("GIT_SYNC_DEST") or _repository_name(repository),
        "GIT_SYNC_ROOT": _CODE,
        "GIT_SYNC_ONE_TIME": "true",
        "GIT_SYNC_BRANCH": spec.sync_branch,
        "GIT_SYNC_REV": spec.sync_revision,
    }
    if not repository.startswith(("/", "file:")):
        # No remote helpers, which run programs. For a local repository git's own rules are stricter.
        fields[ALLOWED_PROTOCOLS] = spec.env.get(ALLOWED_PROTOCOLS) or "git:http:https:ssh"
    from_secret = _from_secret(spec)
    if _uses_ssh(spec) and spec.git_secret:
        fields["GIT_SYNC_SSH"] = "true"
        # Before version 4 this one has no SYNC in its name.
        fields["GIT_KNOWN_HOSTS"] = spec.env.get("GIT_SYNC_KNOWN_HOSTS") or "false"
    fields = {name: value for name, value in fields.items() if value}
    literal = {name: value for name, value in spec.env.items() if name not in from_secret} | fields
    return [{"name": name, "value": value} for name, value in literal.items()] + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, (secret, key) in from_secret.items()
    ]


def _from_secret(spec: JobSpec) -> dict[str, tuple[str, str]]:
    # Explicit credentials win over those of the Secret.
    if _uses_ssh(spec):
        held: dict[str, str] = {}
    elif spec.git_secret:
        held = dict.fromkeys((USERNAME, PASSWORD), spec.git_secret)
    else:
        held = {}
    held |= dict.fromkeys(credentials_in(spec), git_secret_name(spec.name))
    return {f"{GIT_PREFIX}{key.upper()}": (secret, key) for key, secret in held.items()}


def _uses_ssh(spec: JobSpec) -> bool:
    return bool(_SSH_URL.fullmatch(spec.sync_source))


def strip_credentials(source: str) -> str:
    """Return a URL without user and password; one for ssh keeps its user."""
    return source if _SSH_URL.fullmatch(source) else _LOGIN.sub(r"\1", source)


def _repository_name(url: str) -> str:
    # The folder that Arena clones into.
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")


def _without_devices(resources: Mapping[str, Any]) -> Part:
    basic = {
        part: {name: amount for name, amount in amounts.items() if "/" not in name}
        for part, amounts in resources.items()
        if part != "claims"
    }
    return {part: amounts for part, amounts in basic.items() if amounts}


def _add_volume(pod: Part, volume: Part) -> None:
    pod.setdefault("volumes", []).append(volume)


def _mount(container: Part, volume: str, path: str, **more: Any) -> None:
    container.setdefault("volumeMounts", []).append({"name": volume, "mountPath": path, **more})


def default_pull_policy(image: str) -> str:
    """Return the pull policy that the server fills in for an image."""
    is_floating = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    return "Always" if is_floating else "IfNotPresent"
