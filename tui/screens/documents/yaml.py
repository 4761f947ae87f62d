"""One object of the cluster as live YAML, with search, folding and hidden secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import work

from k8s.client.client import Client
from k8s.cluster.backoff import ServerProbe
from k8s.models.resources import Resource
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound
from k8s.text.redact import MARK, Redactor
from k8s.text.sanitize import sanitize
from k8s.text.yaml_writer import YamlLine, to_text, yaml_lines
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents import YAML_VIEW
from tui.screens.documents.text import TextView
from tui.session.object_feed import follow_object
from tui.settings.keys import ViewDeclaration
from tui.text.format import plural

# Replaces a secret.
MASK = "••••"
_MANAGED = "  managedFields:"


@dataclass(frozen=True, slots=True)
class ObjectText:
    """Lines of one object."""

    lines: tuple[YamlLine, ...]
    folded: tuple[YamlLine, ...]
    """Lines with managedFields in one line."""
    managed: int
    secrets: int


def object_text(obj: Mapping[str, Any], *, shows_secrets: bool = False) -> ObjectText:
    """Return the YAML of an object; takes up to a second for the largest ones, so run it in a thread."""
    masked = 0

    def say(text: str) -> str:
        nonlocal masked
        hidden, found = MARK.subn(MASK, text)
        masked += found > 0
        return hidden

    lines = yaml_lines(obj) if shows_secrets else yaml_lines(_without_secrets(obj), say)
    folded, managed = fold(lines)
    return ObjectText(tuple(lines), tuple(folded), managed, masked)


def _without_secrets(obj: Mapping[str, Any]) -> dict[str, Any]:
    # managedFields names fields and holds no values.
    meta = obj.get("metadata")
    managed = meta.get("managedFields") if isinstance(meta, Mapping) else None
    if managed is None or not isinstance(meta, Mapping):
        found: dict[str, Any] = Redactor().object(obj)
        return found
    found = Redactor().object({**obj, "metadata": {**meta, "managedFields": None}})
    found["metadata"]["managedFields"] = managed
    return found


def is_fold(line: YamlLine) -> bool:
    """Return True if a line replaces folded ones."""
    return line.text.startswith(f"{_MANAGED} … ")


def fold(lines: Sequence[YamlLine]) -> tuple[list[YamlLine], int]:
    """Fold metadata.managedFields; return the lines and the number of folded ones."""
    is_meta, start = False, -1
    for index, line in enumerate(lines):
        if not line.text.startswith(" "):
            is_meta = line.text == "metadata:"
        elif is_meta and line.text == _MANAGED:
            start = index
            break
    if start < 0:
        return list(lines), 0
    end = start + 1
    while end < len(lines) and lines[end].text.startswith(("  -", "   ")):
        end += 1
    count = end - start - 1
    words = f"{_MANAGED} … {count:,} lines folded"
    return [*lines[:start], YamlLine(words, 2, len(_MANAGED)), *lines[end:]], count


class YamlScreen(TextView):
    """The YAML of an object, updated by a watch while visible."""

    VIEW: ViewDeclaration = YAML_VIEW
    WRAPS: ClassVar[bool] = False

    def __init__(
        self,
        heading: str,
        client: Client,
        resource: Resource,
        name: str,
        namespace: str,
        *,
        probe: ServerProbe | None = None,
    ) -> None:
        """Show an object.

        Args:
            heading: Title of the view.
            client: The cluster.
            resource: Kind of the object.
            name: Its name.
            namespace: Its namespace; empty for cluster-scoped objects.
            probe: Waits while the cluster is unreachable.
        """
        super().__init__(heading, self._get)
        self._client = client
        self._resource = resource
        self._object_name = name
        self._namespace = namespace
        self._probe = probe or ServerProbe(client)
        self._object: Mapping[str, Any] | None = None
        self._object_text = ObjectText((), (), 0, 0)
        self._shows_managed = False
        self._shows_secrets = False
        self._is_live = True
        self._state = ""

    async def _get(self) -> str:
        obj = await self._client.get(self._resource, self._object_name, self._namespace)
        return to_text(list(object_text(obj).lines))

    @work(exclusive=True, group="follow")
    async def read(self) -> None:
        """Read the object, and follow its changes unless auto-refresh is off."""
        self.set_line("notice", "" if self._object is not None else "Reading…")
        where = (self._resource, self._object_name, self._namespace)
        self._state = "" if self._object is None else "live" if self._is_live else "still"
        try:
            if self._is_live:
                await follow_object(self._client, *where, self._take, self._probe)
            else:
                self._take(await self._client.get(*where))
        except (Forbidden, Invalid) as error:
            if self._object is None:
                self._refuse(error)
            else:  # what may be read may not always be watched
                self._state = "not live: you may not watch it"
                self.say()
        except KubeError as error:
            self._refuse(error)

    def _refuse(self, error: KubeError) -> None:
        if isinstance(error, NotFound) and self._object is not None:
            self._take(None)
        else:
            self.set_line("notice", "\n".join(map(sanitize, str(error).split("\n"))))

    def _take(self, obj: Mapping[str, Any] | None) -> None:
        if obj is None:
            self._state = "gone: this is its last state"
            self.say()
            return
        self.set_line("notice", "")
        self._object = obj
        self._state = "live" if self._is_live else "still"
        self._write()

    @work(exclusive=True, group="write")
    async def _write(self) -> None:
        # In a thread: the largest objects take a while.
        obj = self._object
        if obj is not None:
            self._object_text = await asyncio.to_thread(object_text, obj, shows_secrets=self._shows_secrets)
            self._show()

    def _show(self) -> None:
        if self.is_drawable:
            written = self._object_text
            self._reader.show(written.lines if self._shows_managed else written.folded)
            self.say()

    def said(self) -> list[str]:
        """Return the parts of the title: auto-refresh, and what is hidden."""
        secrets = plural(self._object_text.secrets, "secret")
        return [
            self._state,
            "SECRETS SHOWN"
            if self._shows_secrets
            else f"{secrets} hidden"
            if self._object_text.secrets
            else "",
        ]

    def copy_text(self) -> str:
        """Return the YAML without secrets; managedFields only if they are shown."""
        if self._object is None:
            return ""
        written = object_text(self._object) if self._shows_secrets else self._object_text
        lines = written.lines if self._shows_managed else written.folded
        return to_text([line for line in lines if not is_fold(line)])

    def action_managed(self) -> None:
        """Toggle the lines of managedFields."""
        self._shows_managed = not self._shows_managed
        self._show()

    def action_secrets(self) -> None:
        """Show secrets after confirmation; hide them at once."""
        if self._shows_secrets:
            self._set_secrets(shown=False)
            return
        if not self._object_text.secrets:
            self.flash("There are no secrets here.")
            return

        def answered(answer: str | None) -> None:
            if answer == "do":
                self._set_secrets(shown=True)

        question = f"Show {plural(self._object_text.secrets, 'secret')} on this screen?"
        details = (
            "They stay in the terminal's scrollback, and anyone watching can read them. "
            "Copies never include them."
        )
        self.app.push_screen(ConfirmScreen(question, details, "Show"), answered)

    def _set_secrets(self, *, shown: bool) -> None:
        self._shows_secrets = shown
        self._write()

    def action_live(self) -> None:
        """Toggle auto-refresh."""
        self._is_live = not self._is_live
        self.read()
        self.say()
