"""The contexts of the kubeconfig files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual import work

from k8s.client.auth.kubeconfig import Context, Kubeconfig
from k8s.errors import NoCluster
from k8s.text.sanitize import sanitize
from tui.keys import ViewDeclaration
from tui.screens.base.list_view import ListView
from tui.screens.lists import CONTEXTS
from tui.tables.column import Cell, Column, Row
from tui.terminal.key_queue import keys_held
from tui.text.format import NOTHING, plural
from tui.widgets.table.table import Table

COLUMNS = (
    Column("here", "", min_width=1),
    Column("name", "CONTEXT", min_width=12, elide="middle", max_width=48),
    Column("cluster", "CLUSTER", min_width=8, elide="middle", max_width=32, priority=2),
    Column("server", "SERVER", min_width=12, elide="end", max_width=60, priority=1),
    Column("user", "USER", min_width=8, elide="middle", max_width=32, priority=3),
    Column("namespace", "NAMESPACE", min_width=9, elide="end", max_width=24),
)


class ContextsView(ListView):
    """List of contexts; read from files, so it needs no cluster."""

    VIEW: ClassVar[ViewDeclaration] = CONTEXTS
    ON_ENTER: ClassVar[str] = "switch_context"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS

    def __init__(self, read: Callable[[], Kubeconfig]) -> None:
        """Show the result of `read`, which runs in a thread because home folders may be slow."""
        super().__init__()
        self._read = read
        self._contexts: dict[str, Context] = {}
        self._problem = ""
        self._is_read = False

    def on_mount(self) -> None:
        """Read the kubeconfig."""
        self._reread()

    @work(group="contexts", exclusive=True)
    async def _reread(self) -> None:
        try:
            with keys_held(self.app):  # they are for the table that it fills
                found = await asyncio.to_thread(self._read)
        except NoCluster as error:
            found = Kubeconfig(problems=(error.why,))
        self._contexts = {context.name: context for context in found.contexts}
        self._problem = "\n".join(found.problems)
        self._is_read = True
        self.refresh_view()

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        table.empty = "There is no context." if self._is_read else "Reading the kubeconfig…"
        here = self.snapshot.context
        table.set_rows([_row(context, is_here=context.name == here) for context in self._contexts.values()])
        amount = len(self._contexts)
        self.set_list_title(f"Contexts ({amount})")
        self.set_line("notice", self._problem)
        self.set_line(
            "totals", f"Σ {plural(amount, 'context')}" + (f" · now {sanitize(here)}" if here else "")
        )

    def selected_object(self) -> str:
        """Return the context under the cursor."""
        return self.selected_row()

    def refresh_feeds(self) -> None:
        """Read the kubeconfig again."""
        self._reread()


def _row(context: Context, *, is_here: bool) -> Row:
    words = (context.cluster, context.server, context.user, context.namespace)
    return Row(
        context.name,
        (
            Cell("*" if is_here else "", "running"),
            Cell(sanitize(context.name), "bright" if is_here else ""),
            *(Cell(sanitize(each) or NOTHING, "quiet") for each in words),
        ),
    )
