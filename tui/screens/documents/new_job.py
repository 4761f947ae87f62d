"""Form for a new job: fields, preflight, YAML and a Create button."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.reactive import Reactive, reactive
from textual.widget import Widget
from textual.widgets import Label

from k8s.client.client import Client
from k8s.gpus.links import LinkMatrix
from k8s.jobs.clone import Clone
from k8s.jobs.create import JobRejected
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.draft.fields import EDITED_YAML
from tui.draft.form_model import LOCAL_FIELDS, FormModel, Place
from tui.draft.volume import inspect_volume
from tui.screens.documents.form_files import FileProblem, FormDrafts, ask_for_manifest, prompt_git_credentials
from tui.screens.documents.form_requests import (
    CHECK_TIMES,
    CheckTimes,
    FormChecks,
    FormSuggestions,
    form_submission,
)
from tui.screens.documents.submit import ManifestScreen, Submission, SubmitScreen
from tui.settings.keys import NEW_JOB, Key
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import Field, field_around
from tui.widgets.form.job_fields import CreateBar, JobFields, Notice, PreflightView
from tui.widgets.form.manifest_pane import ManifestPane
from tui.widgets.status_line import KeyBar, StatusLine


class NewJobScreen(SubmitScreen):
    """Form that creates a job."""

    CSS_PATH: ClassVar = ["submit.tcss", "new_job.tcss"]
    AUTO_FOCUS: ClassVar[str] = "#field-name TextField"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings(NEW_JOB, after_fields=("new.leave", "new.edit_yaml"))
    # Textual's own repaints the whole screen; here the fields draw what the focus changes.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        state_folder: Path,
        templates_folder: Path,
        user: str = "",
        snapshot: ClusterSnapshot | None = None,
        clone: Clone | None = None,
        links: dict[str, LinkMatrix] | None = None,
        check_times: CheckTimes = CHECK_TIMES,
    ) -> None:
        """Prepare the form; volume claims are listed once it is on screen.

        Args:
            client: The cluster that will run the job.
            namespace: The default namespace.
            state_folder: Folder for the draft and the last image.
            templates_folder: Folder with the user's own templates.
            user: Who submits, for the job's annotations.
            snapshot: The cluster as it is now; later ones are set, or come by `data_bind`.
            clone: The job to start from, which has a spec.
            links: GPU links by node, as far as known; the form adds to it.
            check_times: Intervals between checks by the cluster.
        """
        super().__init__()
        self.model = FormModel(namespace, user, clone, snapshot=snapshot, links=links)
        self._client = client
        self._drafts = FormDrafts(state_folder, self.model)
        self._suggestions = FormSuggestions(client, templates_folder, self.model)
        self._checks = FormChecks(client, self.model, self._suggestions, check_times)
        self._focused_before_yaml: Widget | None = None
        self.keys: Sequence[Key] = NEW_JOB
        if snapshot is not None:
            self.set_reactive(NewJobScreen.snapshot, snapshot)

    def compose(self) -> ComposeResult:
        """Lay out the form left and the YAML right, or one of them on a narrow terminal."""
        yield StatusLine().data_bind(NewJobScreen.snapshot)
        like = self.model.clone_of
        yield Label(f"New job, clone of {sanitize(like)}" if like else "New job", id="title", markup=False)
        yield Notice()
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield JobFields(self.model.values, id="form")
                yield Label("", id="help", markup=False)
                yield PreflightView(id="preflight")
                yield CreateBar()
            yield ManifestPane(id="yaml", classes="pane")
        yield KeyBar(self.keys)

    def on_mount(self) -> None:
        """Show the form, then fill in what is read from files and from the cluster."""
        self.query_one(Notice).show(self.model.not_carried_over, is_error=False)
        self._show_model()
        self._suggest_known()
        self._load()

    def watch_snapshot(self) -> None:
        """Update suggestions, preflight and old checks."""
        if self.is_mounted:
            values = self.model.values
            self.model.suggest(self.snapshot)
            if self.model.values != values:
                self._show_model()
            else:
                self._show_preflight()
            self._suggest_known()
            is_asking = any(each.group == "checks" and not each.is_finished for each in self.workers)
            if self._checks.is_old and not is_asking:
                self._check()

    def _suggest_known(self) -> None:
        self._suggestions.suggest_known(self.query_one(JobFields), self.snapshot)
        if models := self._suggestions.take_models_to_link(self.snapshot):
            self._load_links(models)

    @work(group="links")
    async def _load_links(self, models: Mapping[str, str]) -> None:
        await self._suggestions.load_links(models)
        self._show_preflight()

    def watch_busy(self) -> None:
        """Show the request in progress on the button."""
        if self.is_mounted:
            self._show_errors()
            self._show_preflight()

    def _show_model(self) -> None:
        if self.is_closing:
            return
        self.query_one(JobFields).show_values(self.model.values, self.model.result.hidden)
        self._show_errors()
        self._show_preflight()
        self._check()
        self._show_yaml()  # also while it is hidden: a wider terminal shows it

    def _show_errors(self) -> None:
        if self.is_closing:
            return
        errors, warnings = self._checks.at_fields()
        self.query_one(JobFields).show_errors({**errors, **self.model.visible_errors}, warnings)
        self.query_one(CreateBar).show(self.busy, len(self.model.errors), self.progress)

    def _show_preflight(self) -> None:
        if not self.is_closing:
            self.query_one(PreflightView).show(self._checks.lines())

    @work(exclusive=True, group="checks")
    async def _check(self) -> None:
        await self._checks.wait()
        field = field_around(self.focused)
        # A path that is being typed names other folders on its way.
        is_typing_path = field is not None and field.key in LOCAL_FIELDS
        if not is_typing_path and await self.model.read_files():
            self._show_yaml()
            self._show_errors()
        await self._checks.ask()
        self._show_errors()
        self._show_preflight()

    def _show_yaml(self) -> None:
        if not self.is_closing:
            self.query_one(ManifestPane).show(self.model.job.manifest, self.model.job.documents)

    def on_field_changed(self, event: Field.Changed) -> None:
        """Update the model, and show it."""
        event.stop()
        field = event.field
        before = self.model.values[field.key]
        self.model.set_value(field.key, field.value)
        if field.value != before:
            self.query_one(Notice).clear_error()  # it was about the values before
        self._save_draft()
        if field.key == "template" and field.value != before:  # a select posts its first value too
            message = self.model.apply_template(self._suggestions.templates.get(field.value))
            self.query_one(Notice).show(message, is_error=False)
        self._show_model()
        self._inspect_volume()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the help of the field with the focus."""
        field = field_around(event.widget)
        text = field.definition.help if field is not None else ""
        if field is not None and field.key == "node_selector":
            self._load_node_labels()
        self.query_one("#help", Label).update(text)
        if not self.query_one(ManifestPane).has_focus_within:
            self._show_panes(False)

    def on_field_blurred(self, event: Field.Blurred) -> None:
        """Show the field's error from now on."""
        event.stop()
        field = event.field
        self.model.touch([field.key])
        self._show_errors()
        if field.key in LOCAL_FIELDS:
            self._check()
        if field.key == "namespace" and field.value != self._suggestions.namespace:
            self._load_choices()

    @work(exclusive=True, group="open")
    async def _load(self) -> None:
        self._load_choices()
        self._load_templates()
        if self.model.clone_of:
            return
        if (
            await self._drafts.fill_in(self.app, self.query_one(Notice), self._show_model)
            and not self.is_closing
        ):
            self._show_model()
            self._show_yaml()
            if text := self.model.values.get(EDITED_YAML):
                self.query_one(ManifestPane).edits.edit(text)
            self._load_choices()

    @work(exclusive=True, group="keep")
    async def _save_draft(self) -> None:
        await self._drafts.autosave()

    @work(exclusive=True, group="templates")
    async def _load_templates(self) -> None:
        problems = await self._suggestions.load_templates(self.query_one(JobFields))
        if problems and not self.is_closing:
            self.query_one(Notice).show("\n".join(problems))

    @work(exclusive=True, group="files")
    async def action_import(self) -> None:
        """Ask for a file, and open its job as YAML; close with the job if it is created."""
        if (opened := await ask_for_manifest(self.app, self.model.user)) is None:
            return
        found, notice = opened
        named = found.manifest["metadata"].get("namespace") or self.model.values["namespace"].strip()
        screen = ManifestScreen(self._client, found, namespace=str(named or "default"), notice=notice)
        screen.watch(self, "snapshot", partial(setattr, screen, "snapshot"))
        ref = await self.app.push_screen_wait(screen)
        if ref is not None:
            if self.model.is_dirty:
                await self._drafts.save(self.query_one(Notice))
            self.close(ref)

    @work(exclusive=True, group="files")
    async def action_git_credentials(self) -> None:
        """Ask for user and password of the repository."""
        notice = self.query_one(Notice)
        try:
            message = await prompt_git_credentials(self.app, self.model)
        except FileProblem as error:
            notice.show(str(error))
            return
        if message:
            notice.show(message, is_error=False)
            self._show_model()

    @work(exclusive=True, group="claims")
    async def _load_choices(self) -> None:
        namespace = self.model.values["namespace"].strip()
        if not namespace:
            return
        await self._suggestions.load(self.query_one(JobFields), namespace, self.snapshot)
        self._show_model()
        self._inspect_volume()

    @work(group="labels")
    async def _load_node_labels(self) -> None:
        await self._suggestions.load_node_labels(self.query_one(JobFields))

    def _inspect_volume(self) -> None:
        if place := self._suggestions.next_place():
            self._read_volume(place)

    @work(exclusive=True, group="volume")
    async def _read_volume(self, place: Place) -> None:
        self.model.set_volume(await inspect_volume(self._client, *place), place)
        self._show_errors()
        self._show_preflight()

    async def action_save_draft(self) -> None:
        """Save the values as a draft."""
        if await self._drafts.save(self.query_one(Notice)):
            self.notify("Draft saved.", markup=False)

    def action_leave(self) -> None:
        """Close the YAML, or the form; asks first when there are unsaved changes."""
        if self.query_one(ManifestPane).has_focus_within:
            self.action_yaml()
        else:
            super().action_leave()

    async def confirm_leave(self) -> bool:
        """Ask whether to save a draft, if there are unsaved changes."""
        return await self._drafts.may_leave(self.app, self.query_one(Notice))

    def close(self, ref: JobRef | None) -> None:
        """Close with the job that was created, or None."""
        self._drafts.close()
        # Their fields are about to be removed.
        for group in ("open", "claims", "volume", "keep", "templates", "labels", "checks"):
            self.workers.cancel_group(self, group)
        super().close(ref)

    def on_unmount(self) -> None:
        """Save a draft when the console ends under the form."""
        self._drafts.save_at_the_end()

    def action_section(self, step: int) -> None:
        """Focus the first field of the next section, or of the previous one."""
        if not self.query_one(JobFields).focus_section(step):
            self.query_one("#create").focus()

    def action_yaml(self) -> None:
        """Focus the YAML, or go back to where the focus was."""
        pane = self.query_one(ManifestPane)
        is_open = pane.has_focus_within
        self._show_panes(not is_open)
        if is_open:
            if self._focused_before_yaml is not None:
                self._focused_before_yaml.focus()
        else:
            self._focused_before_yaml = self.focused
            self._show_yaml()
            self.call_after_refresh(pane.read)

    def _show_panes(self, is_yaml: bool | None = None) -> None:
        # Not a class of the screen or of the form, which would update the styles of all fields.
        pane = self.query_one(ManifestPane)
        pane.set_class(pane.has_class("-open") if is_yaml is None else is_yaml, "-open")
        self.query_one("#left").display = not (pane.has_class("-open") and self.has_class("-narrow"))

    def on_resize(self) -> None:
        """Show the form beside the YAML again if there is room."""
        if self.is_mounted:
            self.call_next(self._show_panes)  # once the screen has its classes for the width

    def reading(self) -> asyncio.Event | None:
        """Return the event that is set once the claims are listed; None if that is done, or pointless."""
        namespace = self.model.values["namespace"].strip()
        if namespace and namespace != self._suggestions.namespace:
            self._suggestions.listed.clear()
            self._load_choices()
        return (
            None
            if self.model.result.problems or self._suggestions.listed.is_set()
            else self._suggestions.listed
        )

    def make_submission(self) -> Submission | None:
        """Return the job as the form has it, or focus the first field with an error."""
        self.query_one(Notice).show("")
        self.model.validate()
        self._show_errors()
        if errors := self.model.errors:
            self._focus_first(errors)
            return None
        values, edits = self.model.values, self.query_one(ManifestPane).edits

        async def accepted(is_dry_run: bool) -> None:
            if is_dry_run:
                self._checks.passed = values, time.strftime("%H:%M:%S")
            else:
                await self._drafts.save_last_image(values["image"].strip())

        self._show_yaml()
        edits.settle()
        try:
            lines = self._checks.lines(before_create=True)
            return form_submission(self._client, self.model, edits, lines, accepted, self.show_upload)
        except ValueError as error:
            self.query_one(Notice).show(f"The YAML cannot be submitted. {error}")
            return None

    async def action_edit_yaml(self) -> None:
        """Edit the YAML if it has the focus."""
        if (pane := self.query_one(ManifestPane)).is_read:
            await pane.open()

    def on_manifest_pane_edited(self, event: ManifestPane.Edited) -> None:
        """Save the edits with the values."""
        self.model.set_edited_yaml(event.text)
        self._save_draft()

    def _focus_first(self, keys: Collection[str]) -> None:
        self._show_errors()
        self._show_panes(False)
        self.call_after_refresh(self.query_one(JobFields).focus_first, keys)

    def show_dry_run_passed(self, submission: Submission) -> None:
        """Show in the preflight that it passed."""
        self._show_preflight()

    async def after_create(self, submission: Submission) -> None:
        """Delete the draft from which the job was created."""
        await self._drafts.delete()

    def show_error(self, error: KubeError, hint: str) -> None:
        """Show each of the server's causes at its field, and everything else in the notice."""
        if not isinstance(error, JobRejected):
            self.query_one(Notice).show("\n".join(filter(None, (str(error), hint))))
            return
        self._checks.passed = None
        keys, without_field = self.model.set_server_errors(error.causes)
        others = without_field or ([] if error.causes else [error.why])
        self.query_one(Notice).show("\n".join(filter(None, (error.what, *others, error.hint))))
        self._focus_first(keys)
