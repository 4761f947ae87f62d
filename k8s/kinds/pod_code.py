"""Brings a job's code and files into its pods: an init container that fetches, volumes that hold.

Of git as Arena does it (charts pytorchjob 0.5.2, mpijob 0.28.0): git-sync runs once and leaves the
repository in `code/` of the working directory. Credentials come out of Secrets, never out of the manifest.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from k8s.job_spec import JobSpec, is_below
from k8s.kinds.git_clone import clone_command

GIT_IMAGE = "registry.k8s.io/git-sync/git-sync:v3.6.9"
"""Fetches from git unless the job names another image."""
RSYNC_IMAGE = "instrumentisto/rsync-ssh:alpine"
"""Fetches by rsync unless the job names another image."""
CODE_KEY = "code.tar.gz"
"""Key of the local folder in its ConfigMap."""
TRAINER_KEY = "trainer.zip"
"""Key of the packaged trainers in their ConfigMap; Python imports out of it as out of a folder."""
TRAINER_FOLDER = "/opt/gpuconsole"
"""Where the packaged trainers are mounted."""
TRAINER_PATH = f"{TRAINER_FOLDER}/{TRAINER_KEY}"
"""What Python is told of them."""
HOME = "/root"
"""Working directory of fetched code where the job names none. Source: Arena."""
SSH_KEY, USERNAME, PASSWORD = "ssh-privatekey", "username", "password"
"""Keys of a Secret for git, as `kubernetes.io/ssh-auth` and `kubernetes.io/basic-auth` name them."""
GIT_PREFIX = "GIT_SYNC_"
"""Variables that git-sync reads: they are its alone."""
_CODE, _ARCHIVE, _GIT_SECRET = "/code", "/archive", "/etc/git-secret"
_SSH_URL = re.compile(r"ssh://.*|[\w.-]+@[\w.-]+:.*")
_LOGIN = re.compile(r"([A-Za-z][\w+.-]*://)([^/?#]*)@")
"""User and password of a URL, whatever follows: it may be typed just now."""
_UNFIT_FOR_KEY = re.compile(r"[^A-Za-z0-9._-]+")
Part = dict[str, Any]


def code_config_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's local folder."""
    return f"{job}-code"


def files_config_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's config files."""
    return f"{job}-files"


def trainer_config_name(job: str) -> str:
    """Return the name of the ConfigMap with the packaged trainers."""
    return f"{job}-trainer"


def git_secret_name(job: str) -> str:
    """Return the name of the Secret that is made for a job's repository."""
    return f"{job}-git"


def file_key(index: int, path: str) -> str:
    """Return the key of a config file in its ConfigMap; `index` keeps files of one name apart."""
    return f"{index}-{_UNFIT_FOR_KEY.sub('_', posixpath.basename(path))}"


def code_folder(spec: JobSpec) -> str:
    """Return where the code is in the pods."""
    return posixpath.join(spec.working_dir or HOME, "code")


def login_in(spec: JobSpec) -> dict[str, str]:
    """Return the credentials that variables or the URL of a spec hold literally, by the Secret's keys."""
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
    """Return the user's variables of the training container: git-sync's are not among them.

    With a packaged trainer Python finds its files first.
    """
    is_git = spec.sync_mode == "git"
    found = {name: value for name, value in spec.env.items() if not (is_git and name.startswith(GIT_PREFIX))}
    if spec.trainer:
        paths = found.get("PYTHONPATH", "").split(":")
        found["PYTHONPATH"] = ":".join(
            [TRAINER_PATH, *(path for path in paths if path not in ("", TRAINER_PATH))]
        )
    return found


def add_code(pod: Part, container: Part, spec: JobSpec) -> None:
    """Add to a pod, and to its training container, what brings the code and files that a job asks for.

    The contents themselves are in objects beside the job: see `k8s.jobs.companions`.
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


def _add_clone(pod: Part, container: Part, spec: JobSpec) -> None:
    """Clone into a folder of a volume; a pod that does not mount it, as a launcher may, finds no code."""
    container.setdefault("workingDir", spec.sync_path)
    mounts = [
        each
        for each in container.get("volumeMounts") or ()
        if is_below(spec.sync_path, each["mountPath"]) and not each.get("readOnly")
    ]
    if not mounts:
        return
    init = _git_container(pod, container, spec)
    init["command"] = clone_command(spec)
    init.setdefault("volumeMounts", []).insert(0, max(mounts, key=lambda each: len(each["mountPath"])))
    if spec.run_as_user is None:
        init["securityContext"] = {"runAsUser": 0}  # the default image's user may not write into a new volume
    pod.setdefault("initContainers", []).append(init)


def _add_sync(pod: Part, container: Part, spec: JobSpec) -> None:
    if spec.sync_mode == "git":
        init = _git_container(pod, container, spec)
    elif spec.sync_mode == "rsync":
        init = _fetching(container, spec, RSYNC_IMAGE)
        init["command"] = ["rsync", "-avP", spec.sync_source, _CODE]
    else:
        init = _fetching(container, spec, spec.image)
        words = f"tar xzf {posixpath.join(_ARCHIVE, CODE_KEY)} -C {_CODE}"
        init["command"] = ["sh", "-c", words]
    init.setdefault("volumeMounts", []).insert(0, {"name": "code-sync", "mountPath": _CODE})
    _add_volume(pod, {"name": "code-sync", "emptyDir": {}})
    if spec.sync_mode == "folder":
        _mount(init, "code-archive", _ARCHIVE, readOnly=True)
        _add_volume(pod, {"name": "code-archive", "configMap": {"name": code_config_name(spec.name)}})
    container.setdefault("workingDir", HOME)
    _mount(container, "code-sync", code_folder(spec))
    pod.setdefault("initContainers", []).append(init)


def _fetching(container: Part, spec: JobSpec, image: str) -> Part:
    """Return the container that fetches, without what it runs: on cores and memory as the training has."""
    init: Part = {"name": "init-code", "image": spec.sync_image or image}
    if spec.pull_policy:
        init["imagePullPolicy"] = spec.pull_policy
    if resources := _without_devices(container.get("resources") or {}):
        init["resources"] = resources
    return init


def _git_container(pod: Part, container: Part, spec: JobSpec) -> Part:
    """Return the container that fetches from git, with its variables and the key it may need."""
    init = _fetching(container, spec, GIT_IMAGE)
    init["env"] = _git_environment(spec)
    if _uses_ssh(spec) and spec.git_secret:
        # The default image runs as a user of its own, who could not read a key that only root may read.
        is_root = bool(spec.sync_image) or (bool(spec.sync_path) and spec.run_as_user is None)
        items = [{"key": SSH_KEY, "path": "ssh"}]
        secret = {"secretName": spec.git_secret, "items": items, "defaultMode": 0o400 if is_root else 0o444}
        _add_volume(pod, {"name": "git-secret", "secret": secret})
        _mount(init, "git-secret", _GIT_SECRET, readOnly=True)
    return init


def _git_environment(spec: JobSpec) -> list[Part]:
    """Return the variables of git-sync: the job's own as in Arena, then what the fields say."""
    repository = without_login(spec.sync_source)
    fields = {
        "GIT_SYNC_REPO": repository,
        "GIT_SYNC_DEST": spec.env.get("GIT_SYNC_DEST") or _repository_name(repository),
        "GIT_SYNC_ROOT": _CODE,
        "GIT_SYNC_ONE_TIME": "true",
        "GIT_SYNC_BRANCH": spec.sync_branch,
        "GIT_SYNC_REV": spec.sync_revision,
    }
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
    """Return which variables of git-sync come from which Secret and key: what was given wins."""
    if _uses_ssh(spec):
        held: dict[str, str] = {}
    elif spec.git_secret:
        held = dict.fromkeys((USERNAME, PASSWORD), spec.git_secret)
    else:
        held = {}
    held |= dict.fromkeys(login_in(spec), git_secret_name(spec.name))
    return {f"{GIT_PREFIX}{key.upper()}": (secret, key) for key, secret in held.items()}


def _uses_ssh(spec: JobSpec) -> bool:
    return bool(_SSH_URL.fullmatch(spec.sync_source))


def without_login(source: str) -> str:
    """Return a URL without user and password; one for ssh keeps its user."""
    return source if _SSH_URL.fullmatch(source) else _LOGIN.sub(r"\1", source)


def _repository_name(url: str) -> str:
    """Return the last part of a URL without `.git`, which is the folder that Arena clones into."""
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")


def _without_devices(resources: Mapping[str, Any]) -> Part:
    """Return the cores and the memory of resources: fetching takes no GPU, nor a claim of one."""
    kept = {
        part: {name: amount for name, amount in amounts.items() if "/" not in name}
        for part, amounts in resources.items()
        if part != "claims"
    }
    return {part: amounts for part, amounts in kept.items() if amounts}


def _add_volume(pod: Part, volume: Part) -> None:
    pod.setdefault("volumes", []).append(volume)


def _mount(container: Part, volume: str, path: str, **more: Any) -> None:
    container.setdefault("volumeMounts", []).append({"name": volume, "mountPath": path, **more})
