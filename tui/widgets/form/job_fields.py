"""The fields of the new-job form, from top to bottom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import ScrollableContainer, Vertical
from textual.widgets import Label

from trainer.catalogue import TRAINERS
from tui.jobs.new_job.fields import ABOUT_COMMAND, COMMAND, RARE, RUN, SECTIONS, FormField, questions_of
from tui.widgets.form.fields import Field, Fold

_CLAIM = next(question for _, part in SECTIONS for question in part if question.key == "claim")


class JobFields(ScrollableContainer, can_focus=False):
    """Shows answers and what is wrong with them; what is typed comes as `Field.Changed`."""

    DEFAULT_CSS = """
    JobFields { overflow-x: hidden; scrollbar-gutter: stable; }
    JobFields Vertical { height: auto; width: 100%; }
    JobFields .section { margin-bottom: 1; }
    JobFields .heading { width: 100%; height: 1; padding: 0 2; }
    """

    def __init__(self, texts: Mapping[str, str], *, id: str | None = None) -> None:
        """Show the answers `texts`, by the key of their question."""
        super().__init__(id=id)
        self._texts = texts
        self._shown: Mapping[str, str] = {}

    def compose(self) -> ComposeResult:
        """Lay out the parts, each with its heading; what few people change is folded."""
        for title, questions in SECTIONS:
            with Vertical(classes="section"):
                yield Label(title, classes="heading", markup=False)
                yield from self._fields(questions)
                if RUN in questions:
                    yield from self._compose_run()
        with Vertical(classes="section"):
            yield Fold("More", RARE)

    def _compose_run(self) -> ComposeResult:
        yield Vertical(*self._fields(ABOUT_COMMAND), id=f"run-{COMMAND}", classes="run")
        for trainer in TRAINERS:
            main, rest = questions_of(trainer)
            fold = Fold("More arguments", rest)
            yield Vertical(*self._fields(main), fold, id=f"run-{trainer.name}", classes="run")

    def _fields(self, questions: Iterable[FormField]) -> list[Field]:
        return [Field(each, self._texts.get(each.key, "")) for each in questions]

    def field(self, key: str) -> Field | None:
        """Return the field of a question; None while it is folded away or not asked."""
        return next((field for field in self.query(Field) if field.key == key), None)

    def show(self, texts: Mapping[str, str]) -> None:
        """Show answers, and the part that belongs to what is run."""
        self._texts = texts
        for field in self.query(Field):
            if field.key in texts:
                field.set_value(texts[field.key])
        for part in self.query(".run"):
            is_asked = part.id == f"run-{texts.get('run', '')}"
            if part.display != is_asked:
                part.display = is_asked

    def show_problems(self, problems: Mapping[str, str]) -> None:
        """Show what is wrong, by the key of the question; what is not there is right."""
        self._shown = problems
        for field in self.query(Field):
            field.problem = problems.get(field.key, "")

    async def focus_first(self, keys: Collection[str]) -> None:
        """Put the focus on the first field of these that is asked, and unfold it if it must be."""
        for fold in self.query(Fold):
            if any(question.key in keys for question in fold.questions) and fold.is_shown:
                await self._fill(fold)
                await fold.turn(True)
        self.show_problems(self._shown)
        for field in self.query(Field):
            if field.key in keys and field.is_shown:
                field.focus_control()
                return

    async def offer_claims(self, names: Sequence[str]) -> None:
        """Offer these volume claims, or none."""
        value = self._texts.get("claim", "")
        missing = [(value, f"{value} (not there)")] if value not in ("", *names) else []
        choices = (*((name, name) for name in names), *missing, ("", "none"))
        await self._claim.ask(replace(_CLAIM, choices=choices, shape="choice"))

    async def let_claim_be_typed(self, why: str) -> None:
        """Let the name of a claim be typed: `why` they cannot be listed."""
        words = f"The claims cannot be listed, type a name. {why}"
        await self._claim.ask(replace(_CLAIM, help=words, hint="none, or its name"))

    @property
    def _claim(self) -> Field:
        return self.query_one("#field-claim", Field)

    def focus_part(self, step: int) -> bool:
        """Put the focus on the first field some parts further; tell whether there is such a part."""
        parts = list(self.query(".section"))
        here = next((index for index, part in enumerate(parts) if part.has_focus_within), None)
        wanted = (len(parts) if step < 0 else -1) if here is None else here
        wanted += step
        if not 0 <= wanted < len(parts):
            return False
        next(widget for widget in parts[wanted].query("*") if widget.focusable).focus()
        return True

    async def on_fold_opening(self, event: Fold.Opening) -> None:
        """Make the fields inside."""
        event.stop()
        await self._fill(event.fold)

    async def _fill(self, fold: Fold) -> None:
        if not fold.is_filled:
            await fold.fill(self._fields(fold.questions))
            self.show_problems(self._shown)
