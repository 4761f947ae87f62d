"""The values in the new-job form, which of them the user set, and which errors may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime

from k8s.job_spec import JobSpec
from k8s.jobs.clone import Clone, next_name
from k8s.jobs.run_folders import run_stamp
from k8s.kinds import CREATABLE
from k8s.snapshot import ClusterSnapshot, Job
from tui.jobs.new_job.earlier_runs import EarlierRuns, earlier_runs
from tui.jobs.new_job.fields import COMMAND, JOB_FORM_FIELDS, default_values, labels
from tui.jobs.new_job.form_spec import base_name, field_key, parse_values, values_from_spec
from tui.jobs.new_job.job_templates import JobTemplate
from tui.jobs.new_job.volume import VolumeContent

_NOT_COMPARED = ("name", "namespace", "user", "command", "trainer", "log_dir")
"""Fields of `JobSpec` that may differ from those of a cloned job: a shell runs the same command."""
_KEYS = {field.key for field in JOB_FORM_FIELDS}


class FormState:
    """The state of one form. Only what the user set makes it dirty, not the console's suggestions."""

    def __init__(self, namespace: str, user: str = "", clone: Clone | None = None) -> None:
        """Start with the defaults, or with the values of a clone."""
        self.clone_of = clone.like if clone is not None else ""
        """Name of the job that is cloned; empty for a new one."""
        self.user = user
        """Who submits, for the job's annotation."""
        self.volume: VolumeContent | None = None
        """What is on the claim's volume; None while that is not known."""
        self._stamp = run_stamp(datetime.now(UTC))
        self._jobs: Sequence[Job] = ()
        self._knows_all_jobs = False
        values = default_values() | {"namespace": namespace or "default"}
        spec = clone.spec if clone is not None else None
        if clone is not None and spec is not None:
            values |= values_from_spec(spec, clone.kind or CREATABLE[0])
        self.values: Mapping[str, str] = values
        """The value of every field, by key; replaced whole, never changed."""
        self._saved: Mapping[str, str] = values
        self._suggested_name = values["name"]
        self._trainer_workers = ""
        self._set_by_user: set[str] = set()
        self._before_template: Mapping[str, str] = {}
        self._name_base = ""
        self._touched: set[str] = set()
        self._server_errors: dict[str, str] = {}
        self._parse()
        self.not_carried_over = self._lost(clone, spec) if clone is not None and spec is not None else ""
        """In a sentence, what the clone lacks of the original; empty where nothing."""
        if clone is None:
            self._suggest_name(())

    def _lost(self, clone: Clone, spec: JobSpec) -> str:
        """Name what `spec` leaves out of the object, what this form leaves out of it, and what it adds."""
        parsed = self.result.spec
        names = [field.name for field in fields(spec) if field.name not in _NOT_COMPARED]
        changed = [name for name in names if getattr(spec, name) != getattr(parsed, name)]
        lost = [*clone.lost, *(name.replace("_", " ") for name in changed if getattr(spec, name))]
        added = [
            f"{name.replace('_', ' ')} {getattr(parsed, name)}" for name in changed if not getattr(spec, name)
        ]
        said = (("Not carried over", lost), ("Only the clone has", added))
        return " ".join(f"{words}: {', '.join(those)}." for words, those in said if those)

    def _parse(self) -> None:
        namespace, root = self.values["namespace"], self.values["mount_path"]
        volume = self.volume
        self.earlier: EarlierRuns = earlier_runs(
            [job for job in self._jobs if job.ref.namespace == namespace],
            volume.runs if volume is not None and volume.is_visible else None,
            root,
            knows_all_jobs=self._knows_all_jobs,
        )
        """The runs that the job can go on from."""
        self.result = parse_values(self.values, self.user, stamp=self._stamp, earlier=self.earlier)
        """The spec that the values make."""

    def set_value(self, key: str, value: str) -> None:
        """Take a value that the user typed or chose."""
        self._set_by_user.add(key)
        self._before_template = {name: text for name, text in self._before_template.items() if name != key}
        self._touched.add(key)
        self._server_errors.pop(key, None)
        self.values = {**self.values, key: value}
        self._parse()

    def set_default(self, key: str, value: str) -> None:
        """Fill in a value unless the user set one."""
        if key not in self._set_by_user:
            self._saved = {**self._saved, key: value}
            self.values = {**self.values, key: value}
            self._parse()

    def suggest(self, snapshot: ClusterSnapshot) -> None:
        """Fill in what depends on the cluster: a name that is free, how many workers; know what runs."""
        self._jobs = [job for job in snapshot.jobs if job.trainer]
        self._knows_all_jobs = snapshot.is_synced and not snapshot.missing_jobs
        self._parse()
        self._suggest_name(
            job.ref.name for job in snapshot.jobs if job.ref.namespace == self.values["namespace"]
        )
        if not self.clone_of:
            self._suggest_workers(snapshot)

    def set_volume(self, volume: VolumeContent | None) -> None:
        """Take what was seen on the claim's volume."""
        self.volume = volume
        self._parse()

    def _suggest_workers(self, snapshot: ClusterSnapshot) -> None:
        """In the sandbox fill in two workers for a packaged trainer where two GPUs are free.

        Decided once: the number must not change while somebody reads it.
        """
        if not self._trainer_workers and snapshot.is_synced and snapshot.server_version:
            free = sum(node.free.get(self.values["gpu_resource"], 0) for node in snapshot.nodes)
            self._trainer_workers = "2" if snapshot.is_sandbox and free >= 2 else "1"
        if self._trainer_workers and "workers" not in self._before_template:
            self.set_default("workers", "1" if self.values["run"] == COMMAND else self._trainer_workers)

    def _suggest_name(self, taken: Iterable[str]) -> None:
        """Fill in a name that is not taken, unless the user typed one."""
        if self.values["name"] != self._suggested_name:
            return
        previous = self.clone_of or f"{self._name_base or base_name(self.values)}-0"
        self._suggested_name = next_name(previous, {self.clone_of, *taken})
        self._saved = {**self._saved, "name": self._suggested_name}
        self.values = {**self.values, "name": self._suggested_name}
        self._parse()

    def apply_template(self, template: JobTemplate | None, snapshot: ClusterSnapshot) -> str:
        """Fill in what a template says where the user has set nothing; what another one filled in goes.

        Returns:
            Which fields it set, and which it left to the user, in sentences.
        """
        given = dict(template.form_values()) if template is not None else {}
        values = {**self.values, **self._before_template}
        self._name_base = given.pop("name", "")
        kept = [key for key in given if key in self._set_by_user]
        taken = {key: text for key, text in given.items() if key not in kept}
        self._before_template = {key: values[key] for key in taken if key in values}
        self.values = {**values, **taken}
        self._parse()
        self.suggest(snapshot)
        if template is None:
            return ""
        changed = [key for key in taken if values.get(key) != taken[key]]
        said = f"Template {template.name} set {labels(changed) or 'nothing that was not so already'}."
        return f"{said} Yours stay: {labels(kept)}." if kept else said

    def fill_in(self, found: Clone) -> str:
        """Take all that a job's object says; return in a sentence what is left out of it.

        Raises:
            ValueError: It has no spec.
        """
        if found.spec is None:
            raise ValueError("no spec")
        given = values_from_spec(found.spec, found.kind or CREATABLE[0])
        self._set_by_user |= set(given)
        self._before_template = {}
        self._server_errors.clear()
        self.values = {**given, "namespace": given["namespace"] or self.values["namespace"]}
        self._parse()
        return self._lost(found, found.spec)

    def load_draft(self, values: Mapping[str, str]) -> None:
        """Take the values of a saved draft."""
        self._set_by_user |= set(values)
        self.values = {**self.values, **values}
        self.mark_saved(self.values)
        self._parse()

    def mark_saved(self, values: Mapping[str, str]) -> None:
        """Note that these values are saved as a draft."""
        self._saved = values

    @property
    def is_dirty(self) -> bool:
        """Whether something was set that is not saved."""
        return self.values != self._saved

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong, by key: the server's errors, then those of our own rules."""
        return {**self._server_errors, **self.result.problems}

    @property
    def visible_errors(self) -> Mapping[str, str]:
        """The errors of fields that the user has changed, left, or tried to submit."""
        shown = {*self._touched, *self._server_errors}
        return {key: error for key, error in self.errors.items() if key in shown}

    def touch(self, keys: Iterable[str]) -> None:
        """Show the errors of these fields from now on."""
        self._touched |= set(keys)

    def validate(self) -> None:
        """Show every error of our own rules, and forget the server's."""
        self._server_errors.clear()
        self.touch(self.result.problems)

    def set_server_errors(self, causes: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Take the server's errors, by fields of `JobSpec`.

        Returns:
            The keys of the fields with errors, and sentences about what has no field.
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
