"""Saves whole logs to files, and says how that goes, also when their view was left meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from textual.app import App
from textual.worker import Worker

from k8s.logs import Item, JobLogs, LogSelection
from tui.files.log_file import save_log
from tui.widgets.log.view import LogView


class LogSaves:
    """The saves of one view; a log that is being saved is not begun again."""

    def __init__(self) -> None:
        """Begin with none."""
        self._begun: dict[Path, Worker[None]] = {}

    def begin(
        self, app: App[object], folder: Path, name: str, logs: JobLogs, choice: LogSelection, view: LogView
    ) -> None:
        """Write all of what a view shows to a file, also what it does not hold.

        Args:
            app: What tells how it goes.
            folder: Where the file is made.
            name: Whose log it is: the job's name.
            logs: What reads it.
            choice: What is shown of it.
            view: What shows it.
        """
        path = folder / f"{name}-{choice}.log".replace(" ", "-").replace("/", "-")
        begun = self._begun.get(path)
        if begun is None or begun.is_finished:
            items = logs.read_whole(choice, view.lines.held, view.lines.gone)
            saving = partial(self._save, app, path, items, with_names=view.names_lines)
            self._begun[path] = app.run_worker(saving, group="save")

    async def _save(
        self, app: App[object], path: Path, items: AsyncIterator[Item], *, with_names: bool
    ) -> None:
        tell = partial(app.notify, markup=False)
        tell(f"Saving all of {path.stem}…")
        try:
            saved = await save_log(path, items, with_names=with_names)
        except OSError as error:
            words = f"{error.strerror or error}: {path.parent}"
            tell(words, title="Could not save the log.", severity="error")
        else:
            notes = "; lines that begin with -- say what is missing" if saved.notes else ""
            tell(f"Saved {saved.lines:,} line{'s' * (saved.lines != 1)} to {saved.path}{notes}")
