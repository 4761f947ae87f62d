"""Requests of the new-job form: suggestions for its fields, checks by the cluster, and the submission."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from k8s.client.client import Client
from k8s.client.rate_limiter import background_requests
from k8s.gpus.gpu_links import fetch_known_links
from k8s.jobs.create import job_objects
from k8s.jobs.upload import Progress
from k8s.kinds import CREATABLE, JobRef
from k8s.kinds.job_spec import JobSpec
from k8s.reasons.cause import ERROR, Cause
from k8s.reasons.cluster_checks import check_against_cluster
from k8s.snapshot import ClusterSnapshot, NodeRow
from tui.draft.fields import KIND
from tui.draft.form_choices import fetch_all, fetch_node_labels, snapshot_choices, volume_choices
from tui.draft.form_model import FormModel, Place
from tui.draft.job_draft import FormResult, field_key
from tui.draft.job_files import create_with_files
from tui.draft.job_templates import JobTemplate, every_template
from tui.draft.manifest_edits import ManifestEdits
from tui.draft.manifest_yaml import check_kind
from tui.draft.preflight import NO_CLAIM, info, line_text
from tui.screens.documents.submit import Submission
from tui.text.format import plural
from tui.widgets.form.job_fields import JobFields


class FormSuggestions:
    """Suggestions for the fields, listed in the background."""

    def __init__(self, client: Client, templates_folder: Path, model: FormModel) -> None:
        """Ask `client`; `templates_folder` has the user's own templates."""
        self._client = client
        self._model = model
        self._has_links = False
        self.templates_folder = templates_folder
        self._has_node_labels = False
        self._place: Place | None = None
        self._nodes: Sequence[NodeRow] | None = None
        self.listed = asyncio.Event()
        """Set once the names in the namespace were requested, whether that succeeded or not."""
        self.namespace = ""
        self.templates: Mapping[str, JobTemplate] = {}

    async def load(self, fields: JobFields, namespace: str, snapshot: ClusterSnapshot) -> None:
        """List the names in a namespace; a field without permission shows that in its help."""
        self.namespace = namespace
        self.listed.clear()
        fields.set_choices(KIND.key, kind_choices(snapshot))
        found = await fetch_all(self._client, namespace)
        for key, choices in found.items():
            fields.offer(key, choices.options, choices.problem)
        volumes = volume_choices(found["claim"])
        fields.offer("more_volumes", volumes.options, volumes.problem)
        self.listed.set()
        claims = [name for name, _ in found["claim"].options]
        self._model.set_claims(namespace, None if found["claim"].problem else claims)

    def take_models_to_link(self, snapshot: ClusterSnapshot) -> Mapping[str, str]:
        """Return the GPU models of the nodes whose links should be read now: once, when nodes are known."""
        if self._has_links:
            return {}
        models = {node.name: node.gpu_model for node in snapshot.nodes if node.gpus_total > 1}
        self._has_links = bool(models)
        return models

    async def load_links(self, models: Mapping[str, str]) -> None:
        """Read the links between the GPUs of nodes, which only Alibaba Cloud's component publishes."""
        self._model.add_links(await fetch_known_links(self._client, models))

    async def load_node_labels(self, fields: JobFields) -> None:
        """List the labels of nodes, once; there may be many, so call it when they are needed."""
        if not self._has_node_labels:
            self._has_node_labels = True
            choices = await fetch_node_labels(self._client)
            fields.offer("node_selector", choices.options, choices.problem)

    async def load_templates(self, fields: JobFields) -> Sequence[str]:
        """Read the templates, and return an error for each invalid file."""
        found, problems = await asyncio.to_thread(every_template, self.templates_folder)
        self.templates = {each.name: each for each in found}
        choices = [(each.name, each.title) for each in found]
        fields.set_choices("template", (("", "none"), *choices))
        return problems

    def next_place(self) -> Place | None:
        """Return the place of the form's volume; None if it was returned last time."""
        place = self._model.place
        if place == self._place:
            return None
        self._place = place
        return place

    def suggest_known(self, fields: JobFields, snapshot: ClusterSnapshot) -> None:
        """Suggest GPU resources and nodes of the snapshot, with what is free."""
        if snapshot.nodes is self._nodes:
            return
        self._nodes = snapshot.nodes
        for key, choices in snapshot_choices(snapshot).items():
            fields.offer(key, choices.options, choices.problem)


def kind_choices(snapshot: ClusterSnapshot) -> list[tuple[str, str]]:
    """Return the kinds of jobs to choose from; those that the server does not serve are marked."""
    served = snapshot.kinds or [each.resource.kind for each in CREATABLE]
    unknown = {each.title for each in CREATABLE if each.resource.kind not in served}
    mark = "  not served here"
    return [(title, label + mark * (title in unknown)) for title, label in KIND.choices]


class CheckTimes(NamedTuple):
    """Intervals between checks by the cluster."""

    after_s: float = 0.6
    """From the last change of the form to the check."""
    holds_s: float = 30.0
    """Age at which an answer is asked for again."""


CHECK_TIMES = CheckTimes()


class _Answer(NamedTuple):
    kind: str
    spec: JobSpec
    findings: Sequence[Cause]
    at_s: float


class FormChecks:
    """Findings about the job, with those of the cluster; findings about an earlier version are marked."""

    def __init__(
        self, client: Client, model: FormModel, suggestions: FormSuggestions, times: CheckTimes
    ) -> None:
        """Check the job of `model` once the form stays unchanged for a moment."""
        self._client = client
        self._model = model
        self._suggestions = suggestions
        self._times = times
        self._answers: list[_Answer] = []
        self.passed: tuple[Mapping[str, str], str] | None = None
        """Values and time of the last dry run; None if there was none, or the server refused it."""

    @property
    def is_old(self) -> bool:
        """True if the cluster's findings should be asked for again."""
        if self._model.result.problems or not self._answers:
            return False
        return bool(self._answers[-1].findings) and not self._holds(self._answers[-1])

    async def wait(self) -> None:
        """Wait until the form has stayed unchanged for a moment; a change cancels the worker."""
        await asyncio.sleep(self._times.after_s)

    async def ask(self) -> None:
        """Check the job against the cluster, unless a recent answer is about the same job."""
        result = self._model.result
        answer = self._answer_to(result)
        if result.problems or (answer is not None and self._holds(answer)):
            return
        kind, spec = result.kind, result.spec
        # The packaged trainers are left empty, which is enough to ask for permissions.
        objects = job_objects(kind, spec, self._model.files, is_optional_too=False)
        with background_requests():
            found = await check_against_cluster(self._client, kind, spec, objects)
        others = [each for each in self._answers if each is not answer and self._holds(each)]
        self._answers = [*others, _Answer(kind.title, spec, tuple(found), time.monotonic())]

    def lines(self, *, before_create: bool = False) -> list[Cause]:
        """Return all findings: the dry run, then errors, then the rest.

        A missing volume claim is reported once the claims are listed, and in any case before create.
        """
        model, job = self._model, self._model.job
        is_current = self._answer_to(model.result) is not None
        found = [*job.findings, *(self._of_cluster() if is_current else ())]
        is_never = any(finding.is_never for finding in found)
        lines = [
            line
            for line in model.preflight
            if not any(line.text in finding.text for finding in found)
            and not (is_never and line.severity == "ok")  # beside it "fits now" would contradict
            and (line.text != NO_CLAIM or before_create or self._suggestions.listed.is_set())
        ]
        lines += found
        if text := model.git_secret_text:
            lines.append(info(text))
        lines += [Cause(text, severity=ERROR) for text in job.file_problems.values()]
        if not is_current:
            lines += [info(f"before your last change: {each.text}") for each in self._of_cluster()]
        lines.sort(key=lambda line: line.severity != "error")
        if self.passed is None:
            return lines
        values, at = self.passed
        passed = Cause(f"dry run passed at {at}", severity="ok")
        return [passed if values == model.values else info("changed since the dry run"), *lines]

    def at_fields(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the errors and the warnings, by the key of their field."""
        errors: dict[str, str] = {}
        warnings: dict[str, str] = {}
        of_preflight = (each for each in self._model.preflight if each.field)
        for each in (*self._model.job.findings, *self._of_cluster(), *of_preflight):
            (errors if each.severity == ERROR else warnings)[self._key_of(each)] = each.warning
        return errors, warnings

    def _key_of(self, finding: Cause) -> str:
        values = self._model.values
        claim = re.escape(values["claim"])
        if finding.field == "mounts" and not re.search(rf" {claim}[ ,:]", f"{finding.text} "):
            return "more_volumes"
        return field_key(finding.field, values)

    def _of_cluster(self) -> Sequence[Cause]:
        result = self._model.result
        if (answer := self._answer_to(result)) is not None:
            return answer.findings
        if not self._answers:
            return ()
        last = self._answers[-1]
        changed = {
            each.name
            for each in fields(JobSpec)
            if getattr(last.spec, each.name) != getattr(result.spec, each.name)
        }
        if last.kind != result.kind.title or "namespace" in changed:
            return ()
        return [each for each in last.findings if each.field not in changed]

    def _answer_to(self, result: FormResult) -> _Answer | None:
        job = (result.kind.title, result.spec)
        return next((each for each in self._answers if (each.kind, each.spec) == job), None)

    def _holds(self, answer: _Answer) -> bool:
        return time.monotonic() - answer.at_s < self._times.holds_s


Accepted = Callable[[bool], Awaitable[None]]
"""Called when the server has accepted a job; with True for a dry run."""


def form_submission(
    client: Client,
    model: FormModel,
    edits: ManifestEdits,
    lines: Sequence[Cause],
    accepted: Accepted,
    on_upload: Progress,
) -> Submission:
    """Return the submission of a form without problems.

    Args:
        client: The cluster.
        model: The form.
        edits: Its YAML.
        lines: All findings, for the prompt.
        accepted: Called when the server has accepted the job.
        on_upload: Called with the progress while a large folder is sent into a volume.

    Raises:
        ValueError: The edited YAML is not a manifest of the form's kind; the message says where.
    """
    kind, spec, login = model.result.kind, model.result.spec, model.files.git_login
    edit = edits.merger()
    manifest = edits.manifest
    check_kind(manifest, kind.resource)
    name = str(manifest["metadata"]["name"])
    namespace = str(manifest["metadata"].get("namespace") or spec.namespace)
    details = [line_text(line, is_marked=True) for line in lines]
    if edits.is_edited:
        details.append(f"! {_edited_text(edits)}")

    async def send(is_dry_run: bool) -> JobRef:
        ref = await create_with_files(
            client,
            kind,
            replace(spec, namespace=namespace),
            dry_run=is_dry_run,
            git_login=login,
            edit=edit,
            on_upload=on_upload,
        )
        await accepted(is_dry_run)
        return ref

    is_doubtful = any(line.severity == ERROR for line in lines)
    is_refused = any(line.is_refusal for line in lines)
    return Submission(kind.title, name, namespace, send, "\n".join(details), is_doubtful, is_refused)


def _edited_text(edits: ManifestEdits) -> str:
    marked = len(edits.conflicts)
    if not marked:
        return "from the YAML as edited"
    verb = "differs" if marked == 1 else "differ"
    return f"from the YAML as edited; {plural(marked, 'line')} {verb} from the form"
