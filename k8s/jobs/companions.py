"""The objects that come along with a job: its code and files, credentials, TensorBoard, what Arena needs.

Pure. Each is labelled with the job's name and, once the job is there, owned by it: who deletes the job
deletes them.
"""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from k8s.job_spec import ACCESS_MODES, NO_FILES, JobFiles, JobSpec, NewClaim
from k8s.jobs.arena_objects import arena_record, tensorboard_objects, tensorboard_problem
from k8s.jobs.upload import upload_mount, uploaded
from k8s.kinds import CreatableKind, Manifest
from k8s.kinds.parse import nested, text_of
from k8s.kinds.pod_code import (
    CODE_KEY,
    TRAINER_KEY,
    code_config_name,
    file_key,
    files_config_name,
    git_secret_name,
    login_in,
    trainer_config_name,
)
from k8s.models.claim import Claim
from k8s.models.quantity import parse
from k8s.models.resources import CLAIMS, CONFIG_MAPS, SECRETS, Resource

JOB_LABEL = "gpuconsole.dev/job"
"""On what comes along with a job: the job's name."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""On what comes along with a job: who made it."""
MANAGER = "gpuconsole"
LONGEST_CONFIG_BYTES = 2**20
"""Contents of one ConfigMap. Source: kubernetes `pkg/apis/core/validation`, MaxSecretSize."""
_TOO_LARGE = "{}: {:,} KiB; a ConfigMap holds 1,024 KiB."


@dataclass(frozen=True, slots=True)
class Companion:
    """An object that is created with a job."""

    resource: Resource
    manifest: Manifest
    field: str
    """Which field of `JobSpec` asks for it."""
    comes_first: bool = True
    """Whether pods need it before they start; else it is created after the job."""
    is_optional: bool = False
    """Whether the job is created all the same for a user who may not create this."""
    outlives_job: bool = False
    """Whether it stays when the job goes; one of its name that is there already does as well."""

    @property
    def title(self) -> str:
        """Return what to call it: `ConfigMap bert-code`."""
        return f"{self.resource.kind} {self.manifest['metadata']['name']}"


def is_uploaded(spec: JobSpec, files: JobFiles) -> bool:
    """Tell whether the local folder is too large for a ConfigMap, so that a volume of the job takes it."""
    return spec.sync_mode == "folder" and len(files.code) > LONGEST_CONFIG_BYTES


def with_files(spec: JobSpec, files: JobFiles) -> JobSpec:
    """Return the spec as it is created: with the Secret made of `files`, and with uploaded code mounted."""
    if is_uploaded(spec, files) and upload_mount(spec) is not None:
        return uploaded(spec, files)
    if files.git_login and spec.sync_mode == "git" and not spec.git_secret:
        return replace(spec, git_secret=git_secret_name(spec.name))
    return spec


def companions_of(kind: CreatableKind, spec: JobSpec, files: JobFiles = NO_FILES) -> tuple[Companion, ...]:
    """Return what comes along with a job, in the order in which it is created.

    Args:
        kind: What the job becomes.
        spec: The job, without problems.
        files: What is read of this machine.
    """
    found = [*_new_claims(spec), *_config_maps(spec, files), *_git_secret(spec, files)]
    make: Callable[[JobSpec], Iterable[tuple[Resource, Manifest]]] = getattr(kind, "companions", _none)
    found += [Companion(resource, manifest, "workers") for resource, manifest in make(spec)]
    if record := arena_record(kind.resource, spec, has_tensorboard=_has_tensorboard(kind, spec)):
        found.append(Companion(CONFIG_MAPS, record, "name", comes_first=False, is_optional=True))
    if _has_tensorboard(kind, spec):
        found += [
            Companion(resource, manifest, "tensorboard", comes_first=False)
            for resource, manifest in tensorboard_objects(kind, spec)
        ]
    return tuple(replace(each, manifest=_labelled(each, spec)) for each in found)


def problems_with_files(spec: JobSpec, files: JobFiles) -> dict[str, str]:
    """Return by field what cannot come along with a job: missing, too large, of no use; a sentence each."""
    found = {}
    if spec.sync_mode == "folder" and not files.code:
        found["sync_source"] = "The folder has not been read."
    elif is_uploaded(spec, files) and upload_mount(spec) is None:
        found["sync_source"] = (
            f"{_TOO_LARGE.format('The packed folder', len(files.code) // 1024)} "
            "Add a volume that takes it (-d claim:/path), or name what is no code in .gitignore."
        )
    missing = [each.local_path for each in spec.config_files if each.local_path not in files.config_files]
    size_bytes = sum(map(len, files.config_files.values()))
    if missing:
        found["config_files"] = f"{missing[0]} has not been read."
    elif size_bytes > LONGEST_CONFIG_BYTES:
        found["config_files"] = _TOO_LARGE.format("The config files", size_bytes // 1024)
    if spec.trainer and not files.trainer:
        found["trainer"] = "The files of the packaged trainers have not been read."
    if sentence := tensorboard_problem(spec):
        found["log_dir"] = sentence
    return found


def _has_tensorboard(kind: CreatableKind, spec: JobSpec) -> bool:
    return spec.tensorboard and not getattr(kind, "runs_tensorboard", False)


def _none(_: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
    return ()


def _new_claims(spec: JobSpec) -> list[Companion]:
    """Return the claims; `data list` shows whose they are by the annotation, as Arena's does."""
    found = []
    for claim in spec.new_claims:
        meta: Manifest = {"name": claim.name, **({"annotations": {"owner": spec.user}} if spec.user else {})}
        manifest = {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": meta, "spec": new_claim_spec(claim)}
        found.append(Companion(CLAIMS, manifest, "new_claims", outlives_job=True))
    return found


def new_claim_spec(claim: NewClaim) -> Manifest:
    """Return what a new volume claim asks for."""
    found: Manifest = {
        "accessModes": [ACCESS_MODES[claim.mode]],
        "resources": {"requests": {"storage": claim.size}},
    }
    return found | ({"storageClassName": claim.storage_class} if claim.storage_class else {})


def shortage(held: Claim, wanted: Mapping[str, object]) -> str:
    """Return why a claim that is there does not do for a new one, in a sentence; empty where it does.

    Args:
        held: The one that is there.
        wanted: The `spec` of the new one.
    """
    if held.state == "Terminating":
        return f"Volume claim {held.metadata.name} is still being deleted."
    size = text_of(nested(wanted, "resources", "requests").get("storage"))
    if held.size and parse(held.size) < parse(size):
        return f"Volume claim {held.metadata.name} is there already with {held.size}, less than {size}."
    return ""


def _config_maps(spec: JobSpec, files: JobFiles) -> list[Companion]:
    found = []
    if spec.sync_mode == "folder":
        code = _config_map(code_config_name(spec.name), {CODE_KEY: files.code})
        found.append(Companion(CONFIG_MAPS, code, "sync_source"))
    if spec.config_files:
        contents = {
            file_key(index, each.path): files.config_files.get(each.local_path, b"")
            for index, each in enumerate(spec.config_files)
        }
        configs = _config_map(files_config_name(spec.name), contents)
        found.append(Companion(CONFIG_MAPS, configs, "config_files"))
    if spec.trainer:
        trainer = _config_map(trainer_config_name(spec.name), {TRAINER_KEY: zipped(files.trainer)})
        found.append(Companion(CONFIG_MAPS, trainer, "trainer"))
    return found


def _git_secret(spec: JobSpec, files: JobFiles) -> list[Companion]:
    login = {**files.git_login, **login_in(spec)} if spec.sync_mode == "git" else {}
    if not login:
        return []
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": git_secret_name(spec.name)},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in login.items()},
    }
    return [Companion(SECRETS, secret, "git_secret" if files.git_login else "env")]


def _config_map(name: str, contents: Mapping[str, bytes]) -> Manifest:
    """Return a ConfigMap: text as it is, anything else encoded."""
    texts, binaries = {}, {}
    for key, content in contents.items():
        try:
            texts[key] = content.decode()
        except UnicodeDecodeError:
            binaries[key] = base64.b64encode(content).decode()
    found: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    if texts:
        found["data"] = texts
    if binaries:
        found["binaryData"] = binaries
    return found


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return files as a zip archive, the same one whenever the files are the same."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(files):
            target.writestr(zipfile.ZipInfo(path), files[path], zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _labelled(companion: Companion, spec: JobSpec) -> Manifest:
    meta = companion.manifest["metadata"]
    labels = {**spec.labels, **(meta.get("labels") or {})}
    labels |= {} if companion.outlives_job else {JOB_LABEL: spec.name}
    labels.setdefault(MANAGED_BY, MANAGER)
    return {**companion.manifest, "metadata": {**meta, "namespace": spec.namespace, "labels": labels}}
