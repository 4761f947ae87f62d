"""What can be typed after `:`, each with what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Argument = Literal["", "job", "namespace", "context", "theme", "words"]
"""What a command takes: the name of one of these, any words, or nothing."""


@dataclass(frozen=True, slots=True)
class PromptCommand:
    """Something to type after `:`."""

    name: str
    aliases: tuple[str, ...]
    takes: Argument
    words: str
    """What the help says."""
    changes: bool = False
    """It changes something on the cluster: with `--readonly` it is not there."""


COMMANDS = (
    PromptCommand("jobs", ("job", "j"), "", "The jobs; jobs all shows also those that finished long ago"),
    PromptCommand("nodes", ("node", "no"), "", "The nodes and who holds their GPUs"),
    PromptCommand("events", ("event", "ev"), "", "What happens on the cluster"),
    PromptCommand("volumes", ("pvc", "data"), "", "The volume claims"),
    PromptCommand("ns", ("namespace", "namespaces"), "namespace", "A namespace, or all; alone: a list"),
    PromptCommand("ctx", ("context", "contexts"), "context", "Another cluster; alone: which there are"),
    PromptCommand("new", ("submit",), "", "New job", changes=True),
    PromptCommand("logs", ("log",), "job", "Logs of a job"),
    PromptCommand("curves", ("curve",), "job", "Curves of a job"),
    PromptCommand("why", (), "job", "Why a job waits, fails or restarts"),
    PromptCommand("info", ("about",), "", "Versions, cluster, and what you may do"),
    PromptCommand("yaml", ("y",), "job", "As YAML: a job, pod/NAME, secret/NAME"),
    PromptCommand("bundle", (), "job", "A file for support: all that is known of a job, its secrets removed"),
    PromptCommand("theme", (), "theme", "Another theme"),
    PromptCommand("help", ("h",), "", "The keys"),
    PromptCommand("quit", ("q", "q!"), "", "Leave"),
)
"""What `:` understands."""


def find_command(word: str) -> PromptCommand | None:
    """Return the command that a word names, by its name or an alias."""
    return next((each for each in COMMANDS if word == each.name or word in each.aliases), None)
