"""From a pod back to the fields of a spec that bring its code: the inverse of `k8s.kinds.pod_code`.

What is taken is what would be made again as it is; anything else stays, and gets a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.git_clone import cloned_folder
from k8s.kinds.parse import count_of, nested, text_of
from k8s.kinds.pod_code import GIT_IMAGE, GIT_PREFIX, RSYNC_IMAGE, add_code, git_secret_name

_SAID_BY_FIELDS = frozenset(
    f"{GIT_PREFIX}{name}" for name in ("REPO", "DEST", "ROOT", "ONE_TIME", "BRANCH", "REV", "SSH")
) | {"GIT_KNOWN_HOSTS"}

_DEFAULTS: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
"""What servers fill in, or nobody says."""


def take_code(pod: Manifest, main: Manifest, job: str, trainer: str) -> dict[str, Any]:
    """Take out of a pod, and of its training container, what brings code by git or rsync, and a trainer.

    What a local folder or a config file holds is in no manifest: they stay.

    Args:
        pod: It is taken apart.
        main: Its training container.
        job: Name of the job.
        trainer: The packaged trainer that it runs, if any.

    Returns:
        Fields of `JobSpec`; of `env` git-sync's variables alone.
    """
    inits = pod.get("initContainers") or []
    fields = _fields_of(inits[0], pod, job) if len(inits) == 1 else {}
    user = count_of(nested(pod, "securityContext").get("runAsUser"))
    made, in_main = _made(main, JobSpec(name=job, trainer=trainer, run_as_user=user, **fields))
    volumes = [_without_server_defaults(each) for each in pod.get("volumes") or ()]
    is_all_there = all(each in volumes for each in made["volumes"])
    if fields and not (is_all_there and _is_same(inits[0], made["initContainers"][0], main)):
        fields = {}
        made, in_main = _made(main, JobSpec(name=job, trainer=trainer))
    if fields:
        del pod["initContainers"]
    mounts = main.get("volumeMounts") or []
    main["volumeMounts"] = [each for each in mounts if each not in in_main["volumeMounts"]]
    if all(each in mounts for each in in_main["volumeMounts"]):
        pod["volumes"] = [
            each for each in pod.get("volumes") or () if _without_server_defaults(each) not in made["volumes"]
        ]
    return fields


def _made(main: Manifest, spec: JobSpec) -> tuple[Manifest, Manifest]:
    """Return what a spec adds to a pod, and to a training container like this one."""
    made: Manifest = {"volumes": []}
    there = list(main.get("volumeMounts") or ())
    in_main: Manifest = {"resources": main.get("resources") or {}, "volumeMounts": list(there)}
    folder = text_of(main.get("workingDir"))
    add_code(made, in_main, replace(spec, working_dir=folder, image=text_of(main.get("image"))))
    in_main["volumeMounts"] = in_main["volumeMounts"][len(there) :]
    return made, in_main


def _is_same(init: Manifest, made: Manifest, main: Manifest) -> bool:
    """Tell whether an init container is the one that we would make.

    Its other variables are the job's, for each of those is given to it too.
    """
    init = {**_DEFAULTS, **init}
    env = [each for each in init.pop("env", None) or () if each not in (main.get("env") or ())]
    same_policy = init.pop("imagePullPolicy", None) in (None, *_policies(main), *_policies(init))
    wanted = {**_DEFAULTS, **made}
    wanted_env = wanted.pop("env", [])
    return same_policy and init == wanted and _by_name(env) == _by_name(wanted_env)


def _policies(container: Manifest) -> tuple[str, str]:
    """Return what a container's image is pulled by: what it says, and what the server fills in."""
    image = text_of(container.get("image"))
    is_floating = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    return text_of(container.get("imagePullPolicy")), "Always" if is_floating else "IfNotPresent"


def _by_name(env: Iterable[Manifest]) -> list[Manifest]:
    return sorted(env, key=lambda each: text_of(each.get("name")))


def _without_server_defaults(volume: Manifest) -> Manifest:
    source = volume.get("configMap")
    if isinstance(source, dict) and source.get("defaultMode") == 0o644:
        return {**volume, "configMap": {key: each for key, each in source.items() if key != "defaultMode"}}
    return volume


def _fields_of(init: Manifest, pod: Manifest, job: str) -> dict[str, Any]:
    """Return the fields that may have made an init container; none where it is not one of ours."""
    env = list(init.get("env") or ())
    literal = {text_of(each.get("name")): text_of(each.get("value")) for each in env if "value" in each}
    image, command = text_of(init.get("image")), init.get("command") or []
    if literal.get("GIT_SYNC_REPO"):
        secrets = _secrets(env, pod.get("volumes") or ())
        own = {name: value for name, value in literal.items() if name.startswith(GIT_PREFIX)}
        return {
            "sync_mode": "git",
            "sync_source": own["GIT_SYNC_REPO"],
            "sync_branch": own.get("GIT_SYNC_BRANCH", ""),
            "sync_revision": own.get("GIT_SYNC_REV", ""),
            "sync_path": cloned_folder(command),
            "sync_image": "" if image == GIT_IMAGE else image,
            "git_secret": next((name for name in secrets if name != git_secret_name(job)), ""),
            "env": {name: value for name, value in own.items() if name not in _SAID_BY_FIELDS},
        }
    if command[:2] == ["rsync", "-avP"] and len(command) == 4:
        sync_image = "" if image == RSYNC_IMAGE else image
        return {"sync_mode": "rsync", "sync_source": text_of(command[2]), "sync_image": sync_image}
    return {}


def _secrets(env: Iterable[Manifest], volumes: Iterable[Manifest]) -> list[str]:
    """Return the Secrets that git-sync's credentials come from."""
    found = [text_of(nested(each, "valueFrom", "secretKeyRef").get("name")) for each in env]
    found += [
        text_of(nested(each, "secret").get("secretName")) for each in volumes if each["name"] == "git-secret"
    ]
    return [name for name in found if name]
