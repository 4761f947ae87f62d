"""Model of the new-job form: the values of its fields, and everything that is derived from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from k8s.gpus.links import LinkMatrix
from k8s.jobs.clone import Clone, next_name
from k8s.jobs.create import JobRejected
from k8s.jobs.owned_objects import problems_with_files, with_files
from k8s.jobs.run_folders import run_stamp
from k8s.kinds import CREATABLE, Manifest
from k8s.kinds.job_spec import JOB_FIELDS, NO_FILES, JobFiles, JobSpec
from k8s.kinds.pod_code import PASSWORD, USERNAME, git_secret_name
from k8s.reasons.cause import Cause
from k8s.reasons.predicates import ClusterCapacity
from k8s.reasons.static_checks import check_statically
from k8s.snapshot import ClusterSnapshot
from trainer.catalogue import TRAINERS
from tui.draft.fields import COMMAND, EDITED_YAML, JOB_FORM_FIELDS, default_text, default_values, labels
from tui.draft.job_draft import FormResult, base_name, field_key, parse_values, texts_of
from tui.draft.job_files import load_job_files, needs_git_credentials
from tui.draft.job_templates import JobTemplate
from tui.draft.manifest_yaml import TRAINER_FILES, documents_beside
from tui.draft.preflight import preflight
from tui.draft.volume import VolumeContent

LOCAL_FIELDS = ("sync_source", "config_files")
_KEYS = {field.key for field in JOB_FORM_FIELDS}
Place = tuple[str, str, str, str]
"""Namespace, claim, mount path, and the folder with MNIST; identifies what is read from a volume."""


@dataclass(frozen=True, slots=True)
class DerivedJob:
    """A job as it will be created; computed once per change of the form."""

    manifest: Manifest
    documents: str
    findings: Sequence[Cause]
    file_problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _LocalFiles:
    names: tuple[object, ...] = ()
    contents: JobFiles = NO_FILES
    problems: Mapping[str, str] = field(default_factory=dict)


class FormModel:
    """Values of one form, and what follows from them.

    Each method that changes an input recomputes at most once: values, spec and problems, manifest and
    owned objects, preflight. Panes only show the results. Suggestions do not make the form dirty.
    """

    def __init__(
        self,
        namespace: str,
        user: str = "",
        clone: Clone | None = None,
        *,
        snapshot: ClusterSnapshot | None = None,
        links: dict[str, LinkMatrix] | None = None,
    ) -> None:
        """Start with the defaults, or with the values of a clone.

        Args:
            namespace: The default namespace.
            user: Who submits, for the job's annotation.
            clone: The job to clone; its spec must fit the form.
            snapshot: The cluster as it is now, for suggestions.
            links: GPU links by node, as far as known; the caller may add to it.
        """
        self.clone_of = clone.source if clone is not None else ""
        self.user = user
        self.links = {} if links is None else links
        self.claims: Sequence[str] | None = None
        """Volume claims of `claims_namespace`; None while they are unknown."""
        self.claims_namespace = ""
        self.git_user = ""
        self._git_password = ""
        self._volume: VolumeContent | None = None
        self._inspected: Place = ("", "", "", "")
        self._files = _LocalFiles()
        self._stamp = run_stamp(datetime.now(UTC))
        self._snapshot = ClusterSnapshot()
        self._capacity = self._snapshot.nodes, ClusterCapacity({})
        values = default_values() | {"namespace": namespace or "default"}
        spec = clone.spec if clone is not None else None
        if clone is not None and spec is not None:
            kind = clone.kind or CREATABLE[0]
            values |= {"kind": kind.title, **texts_of({name: getattr(spec, name) for name in JOB_FIELDS})}
        self.values: Mapping[str, str] = values
        """The value of every field, by key; replaced as a whole, never changed."""
        self._saved: Mapping[str, str] = values
        self._suggested_name = values["name"]
        self._trainer_workers = ""
        self._set_by_user: set[str] = set()
        self._before_template: Mapping[str, str] = {}
        self._name_base = ""
        self._touched: set[str] = set()
        self._server_errors: dict[str, str] = {}
        self._clone = spec
        self._clone_made = parse_values(values, user, stamp=self._stamp).spec if spec is not None else None
        self._computed: tuple[FormResult, JobFiles, _LocalFiles] | None = None
        if clone is None:
            self._suggest_name()
        self._recompute()
        lost = ", ".join(clone.lost) if clone is not None else ""
        self.not_carried_over = f"Not carried over: {lost}." if lost else ""
        """A sentence about what the clone lacks of the original; empty if nothing."""
        if snapshot is not None:
            self.suggest(snapshot)

    def _recompute(self) -> None:
        """Derive everything from the values; what did not change stays the same object."""
        values = self.values
        result = parse_values(values, self.user, stamp=self._stamp, adjust=self._like_the_clone)
        spec, is_read = result.spec, _local_names(result.spec) in ((), self._files.names)
        contents = self._files.contents if is_read else NO_FILES
        trainer = TRAINER_FILES if spec.trainer else {}
        files = replace(contents, git_login=self._git_login(spec), trainer=trainer)
        computed = (result, files, self._files)
        # A snapshot changes the preflight, but seldom the job.
        if computed != self._computed:
            self._computed, self.result, self.files = computed, result, files
            self.job = self._derive(result, files, is_read=is_read)
        self.place: Place = (values["namespace"], values["claim"], values["mount_path"], result.mnist)
        if self._snapshot.nodes is not self._capacity[0]:
            self._capacity = self._snapshot.nodes, ClusterCapacity.of_rows(self._snapshot.nodes)
        self.preflight: list[Cause] = preflight(
            result,
            self._snapshot,
            self.claims,
            self.claims_namespace,
            self._volume if self._inspected == self.place else None,
            self.links,
            self._capacity[1],
        )

    def _like_the_clone(self, spec: JobSpec) -> JobSpec:
        # Text cannot tell `python x.py` from `sh -c "python x.py"`, nor name a trainer's own folders.
        clone, made = self._clone, self._clone_made
        if clone is None or made is None or spec.command != made.command:
            return spec
        log_dir = clone.log_dir if spec.log_dir == made.log_dir else spec.log_dir
        return replace(spec, command=clone.command, trainer=clone.trainer, log_dir=log_dir)

    def _derive(self, result: FormResult, files: JobFiles, *, is_read: bool) -> DerivedJob:
        kind, spec = result.kind, result.spec
        manifest = kind.manifest(with_files(spec, files))
        file_problems: Mapping[str, str] = {}
        unread = "" if is_read else "not read yet"
        if _local_names(spec) and is_read:
            found = self._files.problems or problems_with_files(spec, files)
            file_problems = {name: sentence for name, sentence in found.items() if name in LOCAL_FIELDS}
            unread = "could not be read" if self._files.problems else ""
        findings = [] if result.problems else check_statically(kind, spec, manifest)
        return DerivedJob(
            manifest,
            documents_beside(kind, spec, files, unread),
            # Without a volume, the preflight warns about lost files already.
            [each for each in findings if spec.mounts or each.severity == "error" or each.field != "log_dir"],
            file_problems,
        )

    async def read_files(self) -> bool:
        """Read the job's local files in a thread, unless they were read; return True if it did."""
        spec = self.result.spec
        names = _local_names(spec)
        if not names or names == self._files.names:
            return False
        contents, problems = NO_FILES, {}
        try:
            contents = await load_job_files(replace(spec, trainer=""))
        except JobRejected as error:
            problems = dict(error.causes)
        self._files = _LocalFiles(names, contents, problems)
        self._recompute()
        return True

    def set_git_credentials(self, user: str, password: str) -> None:
        """Use these for the repository while the form is open; an empty password forgets both."""
        self.git_user, self._git_password = (user, password) if password else ("", "")
        self._recompute()

    def _git_login(self, spec: JobSpec) -> Mapping[str, str]:
        if not self._git_password or spec.git_secret or not needs_git_credentials(spec):
            return {}
        return {USERNAME: self.git_user, PASSWORD: self._git_password}

    @property
    def git_secret_text(self) -> str:
        """A line about the Secret that will hold the git credentials; empty if there are none."""
        if not self.files.git_login:
            return ""
        secret = git_secret_name(self.result.spec.name)
        return f"git user {self.git_user} and the password become Secret {secret}"

    def set_value(self, key: str, value: str) -> None:
        """Set a value that the user typed or chose, and the suggestions that follow from it."""
        self._set_by_user.add(key)
        self._before_template = {name: text for name, text in self._before_template.items() if name != key}
        self._touched.add(key)
        self._server_errors.pop(key, None)
        before, self.values = self.values, {**self.values, key: value}
        self._fill_in_implied(before)
        if key != "name":
            self._suggest_values()
        self._recompute()

    def set_edited_yaml(self, text: str) -> None:
        """Store the manifest as edited with the values; empty if it is as the form makes it."""
        self._set_by_user.add(EDITED_YAML)
        self.values = {**self.values, EDITED_YAML: text}

    def set_default(self, key: str, value: str) -> None:
        """Fill in a value unless the user set one."""
        if self._fill_in_default(key, value):
            self._recompute()

    def _fill_in_default(self, key: str, value: str) -> bool:
        if key in self._set_by_user:
            return False
        self._saved = {**self._saved, key: value}
        self.values = {**self.values, key: value}
        return True

    def _fill_in_implied(self, before: Mapping[str, str]) -> None:
        # A model may bring other defaults: with gpt, a batch has 8 sequences.
        for trainer in TRAINERS:
            key = f"{trainer.name}.model"
            was, now = (trainer.implied({"model": values.get(key, "")}) for values in (before, self.values))
            for name in was | now if was != now else ():
                if f"{trainer.name}.{name}" not in self._before_template:
                    default = now.get(name, default_text(trainer.argument(name)))
                    self._fill_in_default(f"{trainer.name}.{name}", default)

    def set_claims(self, namespace: str, claims: Sequence[str] | None) -> None:
        """Set the volume claims of a namespace, None while unknown; fill in `workspace` if it exists."""
        self.claims, self.claims_namespace = claims, namespace
        if not self.clone_of:  # a claim of another namespace must not stay
            self._fill_in_default("claim", "workspace" if "workspace" in (claims or ()) else "")
        self._recompute()

    def add_links(self, links: Mapping[str, LinkMatrix]) -> None:
        """Add GPU links by node; those that are known stay."""
        for node, matrix in links.items():
            self.links.setdefault(node, matrix)
        self._recompute()

    def set_volume(self, volume: VolumeContent | None, place: Place | None = None) -> None:
        """Set the content of the volume at `place`, which defaults to that of the values."""
        self._volume, self._inspected = volume, place or self.place
        self._recompute()

    def suggest(self, snapshot: ClusterSnapshot) -> None:
        """Take a new snapshot: a free name and the number of workers depend on it."""
        self._snapshot = snapshot
        self._suggest_values()
        self._recompute()

    def _suggest_values(self) -> None:
        self._suggest_name()
        if not self.clone_of:
            self._suggest_workers(self._snapshot)

    def _suggest_workers(self, snapshot: ClusterSnapshot) -> None:
        # In the sandbox a packaged trainer gets two workers if two GPUs are free. Decided once: the number
        # must not change while the user looks at it.
        if not self._trainer_workers and snapshot.is_synced and snapshot.server_version:
            free = sum(node.free.get(self.values["gpu_resource"], 0) for node in snapshot.nodes)
            self._trainer_workers = "2" if snapshot.is_sandbox and free >= 2 else "1"
        if self._trainer_workers and "workers" not in self._before_template:
            self._fill_in_default("workers", "1" if self.values["run"] == COMMAND else self._trainer_workers)

    def _suggest_name(self) -> None:
        if self.values["name"] != self._suggested_name:  # the user typed one
            return
        namespace = self.values["namespace"]
        taken = {job.ref.name for job in self._snapshot.jobs if job.ref.namespace == namespace}
        previous = self.clone_of or f"{self._name_base or base_name(self.values)}-0"
        self._suggested_name = next_name(previous, {self.clone_of, *taken})
        self._saved = {**self._saved, "name": self._suggested_name}
        self.values = {**self.values, "name": self._suggested_name}

    def apply_template(self, template: JobTemplate | None) -> str:
        """Undo the previous template, and fill in the fields of this one that the user has not set.

        Returns:
            Sentences that name the fields it set and those it left alone.
        """
        given = dict(template.form_values()) if template is not None else {}
        values = {**self.values, **self._before_template}
        self._name_base = given.pop("name", "")
        user_keys = [key for key in given if key in self._set_by_user]
        filled = {key: text for key, text in given.items() if key not in user_keys}
        self._before_template = {key: values[key] for key in filled if key in values}
        self.values = {**values, **filled}
        self._suggest_values()
        self._recompute()
        if template is None:
            return ""
        changed = [key for key in filled if values.get(key) != filled[key]]
        message = f"Template {template.name} set {labels(changed) or 'nothing new'}."
        return f"{message} Kept your own: {labels(user_keys)}." if user_keys else message

    def load_draft(self, values: Mapping[str, str]) -> None:
        """Fill in the values of a saved draft."""
        self._set_by_user |= set(values)
        self.values = {**self.values, **values}
        self.mark_saved(self.values)
        self._recompute()

    def mark_saved(self, values: Mapping[str, str]) -> None:
        """Remember these values as those of the draft."""
        self._saved = values

    @property
    def is_dirty(self) -> bool:
        """True if the user set something that is not saved."""
        return self.values != self._saved

    @property
    def errors(self) -> Mapping[str, str]:
        """Errors by key: those of the server, of our own rules, and of local files."""
        return {**self._server_errors, **self.result.problems, **self.job.file_problems}

    @property
    def visible_errors(self) -> Mapping[str, str]:
        """Errors of local files, and of the fields that the user changed, left, or tried to submit."""
        shown = {*self._touched, *self._server_errors, *self.job.file_problems}
        return {key: error for key, error in self.errors.items() if key in shown}

    def touch(self, keys: Iterable[str]) -> None:
        """Show the errors of these fields from now on."""
        self._touched |= set(keys)

    def validate(self) -> None:
        """Show every error of our own rules, and clear the server's."""
        self._server_errors.clear()
        self.touch(self.result.problems)

    def set_server_errors(self, causes: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Set the server's errors, by field of `JobSpec`.

        Returns:
            The keys of the fields with errors, and sentences for the errors without a field.
        """
        keys, without_field = [], []
        for name, error in causes.items():
            key = field_key(name, self.values)
            if key in _KEYS:
                self._server_errors[key] = error
                keys.append(key)
            else:
                without_field.append(f"{name}: {error}" if name else error)
        return keys, without_field


def _local_names(spec: JobSpec) -> tuple[object, ...]:
    folder = spec.sync_source if spec.sync_mode == "folder" else ""
    return (folder, spec.config_files) if folder or spec.config_files else ()
