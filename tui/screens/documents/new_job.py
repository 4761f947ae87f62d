"""The form for a new job: fields, preflight, YAML, one button; nothing typed is lost, by error or leaving."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
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
from k8s.errors import KubeError
from k8s.jobs.clone import Clone
from k8s.jobs.create import JobRejected
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from k8s.topology.links import LinkMatrix
from tui.jobs.new_job.fields import EDITED_YAML
from tui.jobs.new_job.form_state import FormState
from tui.jobs.new_job.volume import look_into_volume
from tui.keys import NEW_JOB, Key
from tui.screens.base.request import ActionRequest
from tui.screens.documents.form_checks import CHECK_TIMES, CheckTimes, FormChecks
from tui.screens.documents.form_companions import READ_HERE, FormCompanions, ask_git_login
from tui.screens.documents.form_drafts import FormDrafts
from tui.screens.documents.form_files import import_job, is_done, save_as_template
from tui.screens.documents.form_offers import FormOffers, Place
from tui.screens.documents.form_submission import PassedDryRun, form_submission
from tui.screens.documents.submit import Submission, SubmitScreen
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import Field, field_around
from tui.widgets.form.job_fields import CreateBar, JobFields, Notice, PreflightView
from tui.widgets.form.manifest_pane import ManifestPane
from tui.widgets.key_bar import KeyBar
from tui.widgets.status_line import StatusLine


class NewJobScreen(SubmitScreen):
    """Creates a job from a form."""

    CSS_PATH: ClassVar = ["submit.tcss", "new_job.tcss"]
    AUTO_FOCUS: ClassVar[str] = "#field-name TextField"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings(NEW_JOB, after_fields=("new.leave", "new.edit_yaml"))
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """The widget with the focus. Fields draw what it changes: Textual's own draws the whole screen."""
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    """The cluster as it is now: what is free, which names are taken."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        state_folder: Path,
        user: str = "",
        snapshot: ClusterSnapshot | None = None,
        clone: Clone | None = None,
        templates_folder: Path | None = None,
        links: dict[str, LinkMatrix] | None = None,
        check_times: CheckTimes = CHECK_TIMES,
    ) -> None:
        """Prepare the form; volume claims are listed once it is on screen.

        Args:
            client: The cluster that is to run the job.
            namespace: The default namespace.
            state_folder: Where the draft and the last image are saved.
            user: Who submits, for the job's annotations.
            snapshot: The cluster as it is now; later ones are set, or come by `data_bind`.
            clone: What to start from, if its spec fits the form.
            templates_folder: Where the user's own templates are; None for nowhere.
            links: How the GPUs of each node are linked, as far as it was looked up; more is added.
            check_times: When the cluster is asked what would go wrong.
        """
        super().__init__()
        self.state = FormState(namespace, user, clone)
        """The values in the fields."""
        self._client = client
        self._drafts = FormDrafts(state_folder, self.state)
        self._offers = FormOffers(client, templates_folder, links)
        self._companions = FormCompanions()
        self._checks = FormChecks(client, self.state, self._offers, self._companions, check_times)
        self._focused_before_yaml: Widget | None = None
        self.keys: Sequence[Key] = NEW_JOB
        """The keys in its footer; set before it is shown."""
        if snapshot is not None:
            self.set_reactive(NewJobScreen.snapshot, snapshot)
            self.state.suggest(snapshot)

    def compose(self) -> ComposeResult:
        """Lay out the form left and the YAML right, or one of them on a narrow terminal."""
        yield StatusLine().data_bind(NewJobScreen.snapshot)
        like = self.state.clone_of
        yield Label(f"New job, clone of {sanitize(like)}" if like else "New job", id="title", markup=False)
        yield Notice()
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield JobFields(self.state.values, id="form")
                yield Label("", id="help", markup=False)
                yield PreflightView(id="preflight")
                yield CreateBar()
            yield ManifestPane(id="yaml", classes="pane")
        yield KeyBar(self.keys)

    def on_mount(self) -> None:
        """Show the form, then fill in what is read from files and from the cluster."""
        self.query_one(Notice).show(self.state.not_carried_over, is_error=False)
        self._show_state()
        self._offers.offer_known(self.query_one(JobFields), self.snapshot)
        self._load()

    def watch_snapshot(self) -> None:
        """Suggest and check anew for the new snapshot."""
        if self.is_mounted:
            values = self.state.values
            self.state.suggest(self.snapshot)
            if self.state.values != values:
                self._show_state()
            self._show_preflight()
            self._offers.offer_known(self.query_one(JobFields), self.snapshot)
            is_asking = any(each.group == "checks" and not each.is_finished for each in self.workers)
            if self._checks.is_old and not is_asking:
                self._check()

    def watch_busy(self) -> None:
        """Show the request under way on the button."""
        if self.is_mounted:
            self._show_errors()
            self._show_preflight()

    def _show_state(self) -> None:
        """Show values, errors, preflight and YAML."""
        self.query_one(JobFields).show_values(self.state.values)
        self._show_errors()
        self._show_preflight()
        self._check()
        self._show_yaml()  # also while it is hidden: a wider terminal shows it

    def _show_errors(self) -> None:
        errors, warnings = self._checks.at_fields()
        self.query_one(JobFields).show_errors({**errors, **self.state.visible_errors}, warnings)
        self.query_one(CreateBar).show(self.busy, len(self.state.errors), self.progress)

    def _show_preflight(self) -> None:
        self.query_one(PreflightView).show(self._checks.lines(self.snapshot))

    @work(exclusive=True, group="checks")
    async def _check(self) -> None:
        """Show at the fields and in the preflight what the cluster has against the job."""
        await self._checks.wait()
        field = field_around(self.focused)
        # A path that is being typed names other folders on its way.
        if field is None or field.key not in READ_HERE:
            await self._companions.read(self.state.result.spec)
            if self.is_running:  # while the form is closed its parts go one by one
                self._show_yaml()
                self._show_errors()
        await self._checks.ask()
        if self.is_running:
            self._show_errors()
            self._show_preflight()

    def _show_yaml(self) -> None:
        self.query_one(ManifestPane).show(*self._companions.documents(self.state.result))

    def on_field_changed(self, event: Field.Changed) -> None:
        """Take the new value."""
        event.stop()
        field = event.field
        before = self.state.values[field.key]
        self.state.set_value(field.key, field.value)
        self._keep_unsaved()
        if field.key == "template" and field.value != before:  # a select tells its first value too
            said = self.state.apply_template(self._offers.templates.get(field.value), self.snapshot)
            self.query_one(Notice).show(said, is_error=False)
        if field.key != "name":
            self.state.suggest(self.snapshot)
        self._show_state()
        self._look_into_volume()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the help of the field with the focus."""
        field = field_around(event.widget)
        text = f"  {field.definition.help}" if field is not None else ""
        if field is not None and field.key == "node_selector":
            self._load_node_labels()
        self.query_one("#help", Label).update(text, layout=False)
        if not self.query_one(ManifestPane).has_focus_within:
            self.remove_class("-yaml")

    def on_field_blurred(self, event: Field.Blurred) -> None:
        """Show its error from now on."""
        event.stop()
        field = event.field
        self.state.touch([field.key])
        self._show_errors()
        if field.key in READ_HERE:
            self._check()
        if field.key == "namespace" and field.value != self._offers.namespace:
            self._load_choices()

    @work(exclusive=True, group="open")
    async def _load(self) -> None:
        """Fill in the last image, offer the draft, and list the volume claims."""
        self._load_choices()
        self._load_templates()
        if self.state.clone_of:
            return
        if await self._drafts.fill_in(self.app, self.query_one(Notice), self._show_state):
            self._show_state()
            self._show_yaml()
            if text := self.state.values.get(EDITED_YAML):
                self.query_one(ManifestPane).edits.edit(text)
            self._load_choices()

    @work(exclusive=True, group="keep")
    async def _keep_unsaved(self) -> None:
        await self._drafts.keep()

    @work(exclusive=True, group="templates")
    async def _load_templates(self) -> None:
        """Offer the templates of the package, and the user's own."""
        if problems := await self._offers.load_templates(self.query_one(JobFields)):
            self.query_one(Notice).show("\n".join(problems))

    def action_save_template(self) -> None:
        """Ask for a name, and save the form as a template."""
        if (folder := self._offers.templates_folder) is not None:
            self._with_file(lambda: save_as_template(self.app, folder, self.state))

    def action_import(self) -> None:
        """Ask for a file, and fill in the form like the job in it."""
        self._with_file(lambda: import_job(self.app, self.state))

    def action_git_login(self) -> None:
        """Ask for user and password of the repository."""
        self._with_file(lambda: ask_git_login(self.app, self._companions, self.state.result.spec))

    @work(exclusive=True, group="files")
    async def _with_file(self, doing: Callable[[], Awaitable[str]]) -> None:
        if await is_done(doing, self.query_one(Notice)):
            self._show_state()
            self._keep_unsaved()
            self._load_choices()
            self._load_templates()

    @work(exclusive=True, group="claims")
    async def _load_choices(self) -> None:
        """List what fields can name in the namespace; where that may not be, the field says so."""
        namespace = self.state.values["namespace"].strip()
        if not namespace:
            return
        await self._offers.load(self.query_one(JobFields), namespace, self.snapshot)
        if not self.state.clone_of:  # of another namespace's claims nothing is kept
            self.state.set_default("claim", self._offers.default_claim)
        self._show_state()
        self._look_into_volume()

    @work(group="labels")
    async def _load_node_labels(self) -> None:
        await self._offers.load_node_labels(self.query_one(JobFields))

    def _look_into_volume(self) -> None:
        """Find out what is on the volume, if that is another place than the one that was looked at."""
        if place := self._offers.place_to_look_at(self.state):
            self._look(place)

    @work(exclusive=True, group="volume")
    async def _look(self, place: Place) -> None:
        self.state.set_volume(await look_into_volume(self._client, *place))
        if self.is_running:  # while the form is closed its parts go one by one
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

    def action_jump(self) -> None:
        """Show a letter for each field."""
        self.post_message(ActionRequest("jump"))

    def action_yaml(self) -> None:
        """Focus the YAML, or go back to where the focus was."""
        pane = self.query_one(ManifestPane)
        is_open = pane.has_focus_within
        self.set_class(not is_open, "-yaml")
        if is_open:
            if self._focused_before_yaml is not None:
                self._focused_before_yaml.focus()
        else:
            self._focused_before_yaml = self.focused
            self._show_yaml()
            self.call_after_refresh(pane.read)

    def reading(self) -> asyncio.Event | None:
        """Return what is set once a valid job's claims are known, also of a namespace that was just typed."""
        namespace = self.state.values["namespace"].strip()
        if namespace and namespace != self._offers.namespace:
            self._offers.listed.clear()
            self._load_choices()
        return None if self.state.result.problems or self._offers.listed.is_set() else self._offers.listed

    def make_submission(self) -> Submission | None:
        """Return the job as the form has it, or focus the first field with an error."""
        self.query_one(Notice).show("")
        self.state.validate()
        self._show_errors()
        if self.state.errors:
            self._focus_first(self.state.errors)
            return None
        values, edits = self.state.values, self.query_one(ManifestPane).edits

        async def done(is_dry_run: bool) -> None:
            if is_dry_run:
                self._checks.passed = PassedDryRun(values, time.strftime("%H:%M:%S"))
            else:
                await self._drafts.save_last_image(values["image"].strip())

        self._show_yaml()
        edits.settle()
        try:
            made = (self.state.result, edits, self._checks.lines(self.snapshot), self._companions)
            return form_submission(self._client, *made, done, self.show_upload)
        except ValueError as error:
            self.query_one(Notice).show(f"The YAML cannot be sent. {error}")
            return None

    async def action_edit_yaml(self) -> None:
        """Edit the YAML, where it is being read."""
        if (pane := self.query_one(ManifestPane)).is_read:
            await pane.open()

    def on_manifest_pane_edited(self, event: ManifestPane.Edited) -> None:
        """Keep the edits with the values."""
        self.state.set_value(EDITED_YAML, event.text)
        self._keep_unsaved()

    def _focus_first(self, keys: Collection[str]) -> None:
        self._show_errors()
        self.remove_class("-yaml")
        self.call_after_refresh(self.query_one(JobFields).focus_first, keys)

    def show_dry_run_passed(self, submission: Submission) -> None:
        """Show in the preflight that it passed."""
        self._show_preflight()

    async def after_create(self, submission: Submission) -> None:
        """Delete the draft from which the job was created."""
        await self._drafts.delete()

    def show_error(self, error: KubeError, hint: str) -> None:
        """Show each of the server's causes at its field, and all else in the notice."""
        if not isinstance(error, JobRejected):
            self.query_one(Notice).show("\n".join(filter(None, (str(error), hint))))
            return
        self._checks.passed = None
        keys, without_field = self.state.set_server_errors(error.causes)
        others = without_field or ([] if error.causes else [error.why])
        self.query_one(Notice).show("\n".join(filter(None, (error.what, *others, error.hint))))
        self._focus_first(keys)
