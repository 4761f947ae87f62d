"""Objects created with a job: its code and files, credentials, TensorBoard, Arena's record.

Pure. Each has a label with the job's name and, once the job exists, is owned by it, so that
deleting the job deletes them.
"""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from k8s.jobs.arena_objects import arena_record, tensorboard_objects, tensorboard_problem
from k8s.jobs.upload import upload_mount, uploaded
from k8s.kinds import CreatableKind, Manifest, pod_code
from k8s.kinds.job_spec import ACCESS_MODES, NO_FILES, JobFiles, JobSpec, NewClaim
from k8s.kinds.parse import nested, text_of
from k8s.models.namespace import Claim
from k8s.models.quantity import parse
from k8s.models.resources import CLAIMS, CONFIG_MAPS, SECRETS, Resource

JOB_LABEL = "gpuconsole.dev/job"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gpuconsole"
# Size limit of one ConfigMap. Source: kubernetes `pkg/apis/core/validation`, MaxSecretSize.
LONGEST_CONFIG_BYTES = 2**20
_TOO_LARGE = "{}: {:,} KiB; a ConfigMap holds 1,024 KiB."


class OwnedObject(msgspec.Struct, frozen=True):
    """Object that is created with a job."""

    resource: Resource
    manifest: Manifest
    field: str
    comes_first: bool = True
    """True if pods need it to start; else it is created after the job."""
    is_optional: bool = False
    """True if a job is created without it for a user who may not create it."""
    outlives_job: bool = False
    """True if it remains when the job is deleted; an existing object of its name is used."""

    @property
    def title(self) -> str:
        """Title such as `ConfigMap bert-code`."""
        return f"{self.resource.kind} {self.manifest['metadata']['name']}"


def is_uploaded(spec: JobSpec, files: JobFiles) -> bool:
    """Return True if the local folder is too large for a ConfigMap, and goes to a volume of the job."""
    return spec.sync_mode == "folder" and len(files.code) > LONGEST_CONFIG_BYTES


def with_files(spec: JobSpec, files: JobFiles) -> JobSpec:
    """Return the spec as created: with the Secret made of `files`, and with uploaded code mounted."""
    if is_uploaded(spec, files) and upload_mount(spec) is not None:
        return uploaded(spec, files)
    if files.git_login and spec.sync_mode == "git" and not spec.git_secret:
        return replace(spec, git_secret=pod_code.git_secret_name(spec.name))
    return spec


def owned_objects_of(
    kind: CreatableKind, spec: JobSpec, files: JobFiles = NO_FILES
) -> tuple[OwnedObject, ...]:
    """Return the objects to create with a valid job, in order."""
    found = [*_new_claims(spec), *_config_maps(spec, files), *_git_secret(spec, files)]
    found += [OwnedObject(resource, manifest, "workers") for resource, manifest in kind.owned_objects(spec)]
    has_tensorboard = spec.tensorboard and not kind.runs_tensorboard
    if record := arena_record(kind.resource, spec, has_tensorboard=has_tensorboard):
        found.append(OwnedObject(CONFIG_MAPS, record, "name", comes_first=False, is_optional=True))
    if has_tensorboard:
        found += [
            OwnedObject(resource, manifest, "tensorboard", comes_first=False)
            for resource, manifest in tensorboard_objects(kind, spec)
        ]
    return tuple(msgspec.structs.replace(each, manifest=_labelled(each, spec)) for each in found)


def problems_with_files(spec: JobSpec, files: JobFiles) -> dict[str, str]:
    """Return error messages by field for local content that is missing or too large."""
    found = {}
    if spec.sync_mode == "folder" and not files.code:
        found["sync_source"] = "The folder has not been read."
    elif is_uploaded(spec, files) and upload_mount(spec) is None:
        found["sync_source"] = (
            f"{_TOO_LARGE.format('The packed folder', len(files.code) // 1024)} "
            "Add a writable volume (-d claim:/path), or exclude other files in .gitignore."
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


def _new_claims(spec: JobSpec) -> list[OwnedObject]:
    # `data list` shows the owner by this annotation, which Arena sets too.
    found = []
    for claim in spec.new_claims:
        meta: Manifest = {"name": claim.name, **({"annotations": {"owner": spec.user}} if spec.user else {})}
        manifest = {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": meta, "spec": new_claim_spec(claim)}
        found.append(OwnedObject(CLAIMS, manifest, "new_claims", outlives_job=True))
    return found


def new_claim_spec(claim: NewClaim) -> Manifest:
    """Return the spec of a new volume claim."""
    found: Manifest = {
        "accessModes": [ACCESS_MODES[claim.mode]],
        "resources": {"requests": {"storage": claim.size}},
    }
    return found | ({"storageClassName": claim.storage_class} if claim.storage_class else {})


def shortage(held: Claim, wanted: Mapping[str, object]) -> str:
    """Return the reason why the existing claim `held` cannot serve as a new one; empty if it can."""
    if held.state == "Terminating":
        return f"Volume claim {held.metadata.name} is still being deleted."
    size = text_of(nested(wanted, "resources", "requests").get("storage"))
    if held.size and parse(held.size) < parse(size):
        return f"Volume claim {held.metadata.name} already exists with {held.size}, less than {size}."
    return ""


def _config_maps(spec: JobSpec, files: JobFiles) -> list[OwnedObject]:
    found = []
    if spec.sync_mode == "folder":
        code = _config_map(pod_code.code_config_name(spec.name), {pod_code.CODE_KEY: files.code})
        found.append(OwnedObject(CONFIG_MAPS, code, "sync_source"))
    if spec.config_files:
        contents = {
            pod_code.file_key(index, each.path): files.config_files.get(each.local_path, b"")
            for index, each in enumerate(spec.config_files)
        }
        configs = _config_map(pod_code.files_config_name(spec.name), contents)
        found.append(OwnedObject(CONFIG_MAPS, configs, "config_files"))
    if spec.trainer:
        trainer = _config_map(
            pod_code.trainer_config_name(spec.name), {pod_code.TRAINER_KEY: zipped(files.trainer)}
        )
        found.append(OwnedObject(CONFIG_MAPS, trainer, "trainer"))
    if pod_code.is_brought(spec):
        module = _config_map(pod_code.debug_config_name(spec.name), {pod_code.DEBUG_KEY: files.debuggable})
        found.append(OwnedObject(CONFIG_MAPS, module, "debuggable"))
    return found


def _git_secret(spec: JobSpec, files: JobFiles) -> list[OwnedObject]:
    login = {**files.git_login, **pod_code.credentials_in(spec)} if spec.sync_mode == "git" else {}
    if not login:
        return []
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": pod_code.git_secret_name(spec.name)},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in login.items()},
    }
    return [OwnedObject(SECRETS, secret, "git_secret" if files.git_login else "env")]


def _config_map(name: str, contents: Mapping[str, bytes]) -> Manifest:
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
    """Return a zip archive that is the same whenever the files are the same."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(files):
            target.writestr(zipfile.ZipInfo(path), files[path], zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _labelled(owned: OwnedObject, spec: JobSpec) -> Manifest:
    meta = owned.manifest["metadata"]
    labels = {**spec.labels, **(meta.get("labels") or {})}
    labels |= {} if owned.outlives_job else {JOB_LABEL: spec.name}
    labels.setdefault(MANAGED_BY, MANAGER)
    return {**owned.manifest, "metadata": {**meta, "namespace": spec.namespace, "labels": labels}}
