"""The form for a new job: fields, the plan in words, the YAML, and one button that creates it.

Nothing is created before the server has said in a dry run that it would, and
nothing typed is lost: not by an error, not by leaving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.reactive import Reactive, reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Button, Label

from k8s.client.client import Client
from k8s.errors import Invalid, KubeError, ServerFailed, Unreachable
from k8s.jobs.clone import Clone
from k8s.jobs.create import JobRejected, claim_names, create_job, to_yaml
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from tui.jobs.new_job import draft
from tui.jobs.new_job.draft import DraftProblem
from tui.jobs.new_job.form_spec import FormResult
from tui.jobs.new_job.form_state import JobAnswers
from tui.jobs.new_job.preflight import PlanLine, plan
from tui.keys import NEW_JOB, Key
from tui.screens.base.view import View
from tui.screens.dialogs.confirm import ChooseScreen
from tui.text.format import age
from tui.widgets.form.create_bar import CreateBar
from tui.widgets.form.fields import Field
from tui.widgets.form.job_fields import JobFields
from tui.widgets.form.notice import Notice
from tui.widgets.form.plan_view import PlanView
from tui.widgets.key_bar import KeyBar
from tui.widgets.status_line import StatusLine
from tui.widgets.yaml_view import YamlView


class NewJobScreen(Screen[JobRef | None]):
    """Asks what to run; answers with the job that was created, or None."""

    CSS_PATH: ClassVar = "new_job.tcss"
    AUTO_FOCUS: ClassVar[str] = "#field-name TextField"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.words, show=False, priority=key.keys != "escape", id=key.id)
        for key in NEW_JOB
    ]
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """The widget with the focus. Fields draw what it changes: Textual's own draws the whole screen."""
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    """The cluster as it is now: what is free, which names are taken."""
    doing: reactive[str] = reactive("", init=False)
    """What is being asked of the server; empty while nothing is."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        state_folder: Path,
        user: str = "",
        snapshot: ClusterSnapshot | None = None,
        clone: Clone | None = None,
    ) -> None:
        """Prepare the form; the server is asked for volume claims once it is on screen.

        Args:
            client: The cluster that is to run the job.
            namespace: Where the job is meant to run, unless another is typed.
            state_folder: Where the draft and the last image are kept.
            user: Who asks, for the job's annotations.
            snapshot: The cluster as it is now; later ones are set, or come by `data_bind`.
            clone: What to begin with, if it fits the form.
        """
        super().__init__()
        self.answers = JobAnswers(namespace, user, clone)
        """What stands in the fields."""
        self._client = client
        self._folder = state_folder
        self._claims: list[str] | None = None
        self._claims_of = ""
        self._checked: Mapping[str, str] | None = None
        self._checked_at = ""
        self._is_settled = False
        self._is_draft = False
        self._before_yaml: Widget | None = None
        self.keys: Sequence[Key] = NEW_JOB
        """The keys that its last line tells; set before it is shown."""
        if snapshot is not None:
            self.set_reactive(NewJobScreen.snapshot, snapshot)
            self.answers.suggest(snapshot)

    def compose(self) -> ComposeResult:
        """Lay out the form at the left, the YAML at the right, or one of them where it is narrow."""
        yield StatusLine().data_bind(NewJobScreen.snapshot)
        like = self.answers.like
        yield Label(f"New job, like {sanitize(like)}" if like else "New job", id="title", markup=False)
        yield Notice(id="job-notice")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield JobFields(self.answers.texts, id="form")
                yield Label("", id="help", markup=False)
                yield PlanView(id="plan")
                yield CreateBar(id="act")
            yield YamlView(id="yaml", classes="pane")
        yield KeyBar(self.keys)

    def on_mount(self) -> None:
        """Read what was kept, ask for the volume claims, and show the form."""
        self.query_one("#yaml").border_title = "YAML"
        self.query_one(Notice).say(self.answers.not_carried_over, is_bad=False)
        self._review()
        self._open()

    def watch_snapshot(self) -> None:
        """Plan anew on the new picture."""
        if self.is_mounted:
            texts = self.answers.texts
            self.answers.suggest(self.snapshot)
            if self.answers.texts != texts:
                self._review()
            self._show_plan()

    def watch_doing(self) -> None:
        """Say on the button what is going on."""
        if self.is_mounted:
            self._show_problems()

    def _review(self) -> None:
        """Show what the answers amount to: the part to fill in, problems, the plan, the YAML."""
        self.query_one(JobFields).show(self.answers.texts)
        self._show_problems()
        self._show_plan()
        if self.query_one("#yaml").display:
            self._show_yaml()

    def _show_problems(self) -> None:
        self.query_one(JobFields).show_problems(self.answers.shown_problems)
        self.query_one(CreateBar).show(self.doing, len(self.answers.problems))

    def _show_plan(self) -> None:
        lines = plan(self.answers.wish, self.snapshot, self._claims, self._claims_of)
        if self._checked is not None:
            words = f"the server would create it (asked at {self._checked_at})"
            changed = PlanLine("note", "changed since the server was asked")
            lines.append(PlanLine("good", words) if self._checked == self.answers.texts else changed)
        self.query_one(PlanView).show(lines)

    def _show_yaml(self) -> None:
        wish = self.answers.wish
        self.query_one(YamlView).show(to_yaml(wish.kind.manifest(wish.spec)))

    def on_field_changed(self, event: Field.Changed) -> None:
        """Take the new answer."""
        event.stop()
        field = event.field
        self.answers.give(field.key, field.value)
        if field.key != "name":
            self.answers.suggest(self.snapshot)
        self._review()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Explain the field that has the focus."""
        field = next((each for each in event.widget.ancestors if isinstance(each, Field)), None)
        words = f"  {field.question.help}" if field is not None else ""
        self.query_one("#help", Label).update(words, layout=False)
        if event.widget is not self.query_one(YamlView):
            self.remove_class("-yaml")

    def on_field_left(self, event: Field.Left) -> None:
        """Say from now on what is wrong with it."""
        event.stop()
        field = event.field
        self.answers.touch([field.key])
        self._show_problems()
        if field.key == "namespace" and field.value != self._claims_of:
            self._load_claims()

    @work(exclusive=True, group="open")
    async def _open(self) -> None:
        """Take up the image used last and the draft that was kept; then ask for the claims."""
        self._load_claims()
        if self.answers.like:
            return
        if image := await asyncio.to_thread(draft.remembered_image, self._folder):
            self.answers.offer("image", image)
            self._review()
        try:
            kept = await asyncio.to_thread(draft.read_draft, self._folder)
        except DraftProblem as problem:
            self.query_one(Notice).say(str(problem))
            return
        if kept is None:
            return
        name = sanitize(kept.texts.get("name", "")) or "a job without a name"
        answer = await self.app.push_screen_wait(
            ChooseScreen(
                "Go on with your draft?",
                f"{name}, kept {age(time.time() - kept.saved_s)} ago. It stays until you keep another.",
                (("go-on", "Go on with it"), ("afresh", "Start afresh")),
            )
        )
        if answer == "go-on":
            self._is_draft = True
            self.answers.resume(kept.texts)
            self._review()
            self._load_claims()

    @work(exclusive=True, group="claims")
    async def _load_claims(self) -> None:
        """Offer the volume claims of the namespace; where they cannot be listed, let one be typed."""
        namespace = self.answers.texts["namespace"].strip()
        if not namespace:
            return
        self._claims, self._claims_of = None, namespace
        try:
            names = await claim_names(self._client, namespace)
        except KubeError as error:
            await self.query_one(JobFields).let_claim_be_typed(" ".join(error.why.split()))
        else:
            self._claims = names
            if "workspace" in names and not self.answers.like:
                self.answers.offer("claim", "workspace")
            await self.query_one(JobFields).offer_claims(names)
        self._review()

    async def action_keep(self) -> None:
        """Keep what is typed as a draft."""
        if await self._keep():
            self.notify("The draft is kept.", markup=False)

    async def _keep(self) -> bool:
        texts = self.answers.texts
        try:
            await asyncio.to_thread(draft.keep_draft, self._folder, texts)
        except DraftProblem as problem:
            self.query_one(Notice).say(str(problem))
            return False
        self.answers.keep(texts)
        self._is_draft = True
        return True

    @work(exclusive=True, group="leave")
    async def action_leave(self) -> None:
        """Close the YAML, or the form; ask when something was typed."""
        if self.query_one(YamlView).has_focus:
            self.action_yaml()
        elif self.doing:
            words = "The server is still being asked; that takes half a minute at most."
            self.query_one(Notice).say(words, is_bad=False)
        elif not self.answers.is_dirty:
            self._settle(None)
        else:
            choices = (("keep", "Keep draft"), ("discard", "Discard"), ("stay", "Go on"))
            details = "The draft is offered when you make the next job."
            answer = await self.app.push_screen_wait(ChooseScreen("Keep what you typed?", details, choices))
            if answer == "discard" or (answer == "keep" and await self._keep()):
                self._settle(None)

    def _settle(self, ref: JobRef | None) -> None:
        self._is_settled = True
        for group in ("open", "claims"):  # what they would fill in is being taken down
            self.workers.cancel_group(self, group)
        self.dismiss(ref)

    def on_unmount(self) -> None:
        """Keep what is typed when the console ends under the form."""
        if self.answers.is_dirty and not self._is_settled:
            try:
                draft.keep_draft(self._folder, self.answers.texts)
            except DraftProblem as problem:
                self.log.error(str(problem))

    def action_section(self, step: int) -> None:
        """Go to the first field of the next part, or of the one before."""
        if not self.query_one(JobFields).focus_part(step):
            self.query_one("#create").focus()

    def action_jump(self) -> None:
        """Show a letter for each field."""
        self.post_message(View.Go("jump"))

    def action_yaml(self) -> None:
        """Go to the YAML, and back to where the focus was."""
        pane = self.query_one(YamlView)
        is_there = pane.has_focus
        self.set_class(not is_there, "-yaml")
        if is_there:
            if self._before_yaml is not None:
                self._before_yaml.focus()
        else:
            self._before_yaml = self.focused
            self._show_yaml()
            self.call_after_refresh(pane.focus)

    def action_check(self) -> None:
        """Ask the server whether it would create the job."""
        if self._is_ready():
            self._start(is_check=True)

    def action_create(self) -> None:
        """Go to the button; on the button create the job."""
        button = self.query_one("#create", Button)
        if self._is_ready():
            if button.has_focus:
                self._start()
            self.remove_class("-yaml")
            self.call_after_refresh(button.focus)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Create the job."""
        event.stop()
        if self._is_ready():
            self._start()

    def _start(self, *, is_check: bool = False) -> None:
        # Said here, not in the worker: a second key may come before the worker's first step.
        self.doing = "Asking the server…"
        self._ask(self.answers.wish, self.answers.texts, is_check=is_check)

    def _is_ready(self) -> bool:
        """Tell whether the server may be asked; if not, show the first field that is wrong."""
        if self.doing:
            return False
        self.query_one(Notice).say("")
        self.answers.try_all()
        self._show_problems()
        if self.answers.problems:
            self._focus_first(self.answers.problems)
        return not self.answers.problems

    def _focus_first(self, keys: Collection[str]) -> None:
        self._show_problems()
        self.remove_class("-yaml")
        self.call_after_refresh(self.query_one(JobFields).focus_first, keys)

    @work(exclusive=True, group="submit")
    async def _ask(self, wish: FormResult, texts: Mapping[str, str], *, is_check: bool) -> None:
        """Ask the server whether it would create the job, and if that is wanted create it."""
        try:
            if await self._would_create(wish):
                self._checked, self._checked_at = texts, time.strftime("%H:%M:%S")
            if not is_check:
                self.doing = "Creating…"
                ref = await create_job(self._client, wish.kind, wish.spec)
                await asyncio.to_thread(draft.remember_image, self._folder, wish.spec.image)
                if self._is_draft:
                    await asyncio.to_thread(draft.drop_draft, self._folder)
                self._settle(ref)
                return
        except JobRejected as error:
            self._show_refusal(error)
        except KubeError as error:
            may_exist = self.doing == "Creating…" and isinstance(error, (Unreachable, ServerFailed))
            hint = f"\nIt may exist all the same: look for {wish.spec.name} before you try again." * may_exist
            self.query_one(Notice).say(f"{error}{hint}")
        self.doing = ""
        self._show_plan()

    async def _would_create(self, wish: FormResult) -> bool:
        """Ask in a dry run; False when something on the server knows no dry runs."""
        try:
            await create_job(self._client, wish.kind, wish.spec, dry_run=True)
        except Invalid as error:
            if error.causes or "does not support dry run" not in error.why:
                raise
            return False
        return True

    def _show_refusal(self, error: JobRejected) -> None:
        """Put each cause at its field, and what belongs to none at the top."""
        self._checked = None
        keys, homeless = self.answers.refuse(error.causes)
        rest = homeless or ([] if error.causes else [error.why])
        self.query_one(Notice).say("\n".join(part for part in (error.what, *rest, error.hint) if part))
        self._focus_first(keys)
