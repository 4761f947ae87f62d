"""`submit --template`: a template's values, as if they had been typed before the flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from k8s.kinds import CREATABLE
from trainer.catalogue import find
from tui.commands.support.output import WrongUsage
from tui.commands.support.parser import CommandParser
from tui.draft.job_templates import JobTemplate, own_templates, packaged_templates
from tui.settings.options import ConsoleOptions
from tui.text.kind_words import words_of

_FLAG = "--template"
_NOT_FLAGS = ("trainer", "namespace")


def every_template(folder: Path) -> tuple[list[JobTemplate], list[str]]:
    """Return the user's and the packaged templates, and a sentence for each unreadable file.

    Args:
        folder: Folder of the user's templates, which come first and hide others of their name.
    """
    own, problems = own_templates(folder)
    names = {template.name for template in own}
    return [*own, *(each for each in packaged_templates() if each.name not in names)], problems


def template_named(name: str, folder: Path) -> JobTemplate:
    """Return a template by name.

    Raises:
        WrongUsage: The template does not exist; the message names those that do.
    """
    found, problems = every_template(folder)
    template = next((each for each in found if each.name == name), None)
    if template is None:
        known = ", ".join(each.name for each in found)
        said = f"There is no template {name!r}" if name else "Name a template"
        own = [problem for problem in problems if name and str(folder / f"{name}.yaml") in problem]
        raise WrongUsage("\n".join([f"{_FLAG}: {said}: {known}.", *own]))
    return template


def with_kind(parser: CommandParser, kinds: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments of `submit` with the kind of its template, if none was typed.

    Args:
        parser: Parser of `submit`, which knows the flags before the kind.
        kinds: Names of kinds.
        words: The arguments as typed.
    """
    found = list(words)
    name = _template_in(found)
    at = parser.command_at(found)
    if name is None or (at is not None and (found[at] in kinds or not _is_of_kind(found[at]))):
        return found
    try:
        template = template_named(name, ConsoleOptions().templates_folder)
    except WrongUsage as error:
        parser.error(str(error))
    if not template.kind:
        parser.error(f"template {name} names no kind of job: say submit KIND {_FLAG} {name}")
    kind = next((kind for kind in CREATABLE if kind.title == template.kind), None)
    if kind is None:
        parser.error(f"template {name}: no {template.kind} is made here")
    found.insert(len(found) if at is None else at, words_of(kind)[0])
    return found


def _template_in(words: Sequence[str]) -> str | None:
    found = None
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == _FLAG:
            found = value if equals else next(iter(words[index + 1 :]), "")
    return found


def _is_of_kind(word: str) -> bool:
    """Return True for a word that can only follow a kind: a job's option, or a shell command."""
    return word.startswith("-") or " " in word


def fill_in(flags: argparse.Namespace, template: JobTemplate) -> None:
    """Give the parsed flags a template's values where they have none.

    Pairs are merged by name; any other repeated field is replaced by what was typed.

    Raises:
        WrongUsage: The template's trainer has no such arguments.
    """
    trainer = template.fields.get("trainer", "")
    flags.template_fields = {name: value for name, value in template.fields.items() if name not in _NOT_FLAGS}
    if not trainer or flags.command or flags.trainer not in ("", trainer):
        return
    try:
        words = find(trainer).words(template.arguments)
    except (LookupError, ValueError) as error:
        raise WrongUsage(f"{_FLAG}: template {template.name}: {error.args[0]}") from error
    flags.trainer, flags.rest = trainer, [*words, *flags.rest]
