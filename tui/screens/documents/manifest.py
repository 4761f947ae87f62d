"""A job's manifest to be changed as YAML and created: a clone that no form can say whole."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Button, Label

from k8s.client.client import Client
from k8s.errors import Invalid, KubeError, ServerFailed, Unreachable
from k8s.jobs.clone import Clone
from k8s.jobs.create import create_manifest, to_yaml
from k8s.kinds import JobRef, Manifest
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from tui.jobs.new_job.manifest_yaml import read_manifest
from tui.keys import NEW_JOB
from tui.screens.dialogs.confirm import ChooseScreen
from tui.text.format import plural
from tui.widgets.bindings import bindings
from tui.widgets.form.create_bar import CreateBar
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.notice import Notice
from tui.widgets.key_bar import KeyBar
from tui.widgets.status_line import StatusLine

KEYS = tuple(key for key in NEW_JOB if key.action in ("create", "check", "leave"))
"""Those of the new-job form that mean something here."""


class ManifestScreen(Screen[JobRef | None]):
    """Shows the YAML of a job that is not made yet; answers with the job that was created, or None."""

    DEFAULT_CSS = """
    ManifestScreen Lines, ManifestScreen Lines:focus { height: 1fr; border: none; padding: 0 1; }
    ManifestScreen #manifest-notice { height: auto; max-height: 6; padding: 0 1; background: $panel; }
    ManifestScreen #act { width: 100%; height: 1; }
    ManifestScreen #create { min-width: 12; margin: 0 1; }
    """
    AUTO_FOCUS: ClassVar[str] = "TextAreaField"
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    """The cluster as it is now."""
    doing: reactive[str] = reactive("", init=False)
    """What is being asked of the server; empty while nothing is."""

    def __init__(self, client: Client, clone: Clone, *, namespace: str) -> None:
        """Prepare to change what `clone` says, and to create it in `namespace` unless it says where."""
        super().__init__()
        self._client = client
        self._clone = clone
        self._namespace = namespace
        self._text = ""

    def compose(self) -> ComposeResult:
        """Lay out what is to be known, the YAML, and the button."""
        yield StatusLine().data_bind(ManifestScreen.snapshot)
        yield Label(f"New job, like {sanitize(self._clone.like)}", id="title", markup=False)
        yield Notice(id="manifest-notice")
        yield TextAreaField(show_line_numbers=True, id="manifest")
        yield CreateBar(id="act")
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        """Say why this is no form, and what still names the other job."""
        clone = self._clone
        smaller = len(clone.lost) - len(clone.too_much)
        rest = f" and {plural(smaller, 'smaller thing')}" if smaller else ""
        why = f"A form cannot say {', '.join(clone.too_much)}{rest}."
        why = why if clone.lost else "No form makes jobs of this kind."
        self.query_one(Notice).say(f"{why} {clone.names_left}".strip(), is_bad=False)
        lines = self.query_one(TextAreaField)
        lines.load_text(to_yaml(clone.manifest))
        self._text = lines.text
        self.watch_doing()

    def watch_doing(self) -> None:
        """Say on the button what is going on."""
        self.query_one(CreateBar).show(self.doing, 0)

    def action_check(self) -> None:
        """Ask the server whether it would create the job."""
        self._start(is_check=True)

    def action_create(self) -> None:
        """Go to the button; on the button create the job."""
        button = self.query_one("#create", Button)
        if button.has_focus:
            self._start()
        button.focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Create the job."""
        event.stop()
        self._start()

    def _start(self, *, is_check: bool = False) -> None:
        if self.doing:
            return
        try:
            manifest = read_manifest(self.query_one(TextAreaField).text)
            self._check_kind(manifest)
        except ValueError as error:
            self.query_one(Notice).say(str(error))
            self.query_one(TextAreaField).focus()
            return
        self.doing = "Asking the server…"
        self._ask(manifest, is_check=is_check)

    def _check_kind(self, manifest: Manifest) -> None:
        """Refuse another kind, for which this is not the place on the server.

        Raises:
            ValueError: It is another.
        """
        resource = self._clone.resource
        if (manifest.get("kind"), manifest.get("apiVersion")) != (resource.kind, resource.api_version):
            raise ValueError(f"It must stay a {resource.kind}, {resource.api_version}.")

    @work(exclusive=True, group="submit")
    async def _ask(self, manifest: Manifest, *, is_check: bool) -> None:
        """Ask the server whether it would create the job, and if that is wanted create it."""
        notice = self.query_one(Notice)
        try:
            await self._send(manifest, is_dry=True)
            if not is_check:
                self.doing = "Creating…"
                self.dismiss(await self._send(manifest))
                return
            notice.say("The server would create it.", is_bad=False)
        except KubeError as error:
            may_exist = self.doing == "Creating…" and isinstance(error, (Unreachable, ServerFailed))
            hint = "\nIt may exist all the same: look before you try again." * may_exist
            notice.say(f"{error}{hint}")
            self.query_one(TextAreaField).focus()
        self.doing = ""

    async def _send(self, manifest: Manifest, *, is_dry: bool = False) -> JobRef | None:
        """Create it, or ask in a dry run; None when something on the server knows no dry runs."""
        said = manifest["metadata"].get("namespace")
        namespace = said if isinstance(said, str) and said else self._namespace
        try:
            return await create_manifest(
                self._client, self._clone.resource, manifest, namespace, dry_run=is_dry
            )
        except Invalid as error:
            if not is_dry or error.causes or "does not support dry run" not in error.why:
                raise
            return None

    @work(exclusive=True, group="leave")
    async def action_leave(self) -> None:
        """Leave; ask when something was typed."""
        if self.doing:
            words = "The server is still being asked; that takes half a minute at most."
            self.query_one(Notice).say(words, is_bad=False)
            return
        if self.query_one(TextAreaField).text != self._text:
            choices = (("stay", "Go on"), ("discard", "Discard"))
            answer = await self.app.push_screen_wait(
                ChooseScreen("Discard what you typed?", "It is kept nowhere.", choices, escape=0)
            )
            if answer != "discard":
                return
        self.dismiss(None)
