"""Every key and every `:` command of the console, in one table.

The footer, the help and the bindings are all made from it, so they cannot disagree.
The letters are k9s' where k9s has one. Ids are what a user's keys.yaml names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or several that do the same."""

    keys: str
    """As Textual names them, with commas between: `j,down`."""
    action: str
    """What the screen does: the name of its `action_…` method."""
    words: str
    """What the help says."""
    short: str = ""
    """What the footer says; empty keeps it out of the footer."""
    label: str = ""
    """How the key is written for people, where that is not its name."""
    opens_prompt: bool = False
    """What is typed next belongs to the prompt, also when it arrives in the same packet."""

    @property
    def shown(self) -> str:
        """Return the key as people write it: `^d`, `enter`, `/`."""
        return self.label or self.keys.split(",")[0].replace("ctrl+", "^")


EVERYWHERE = (
    Key("escape", "back", "Back; first clears the filter", "back", "esc"),
    Key("slash", "filter", "Filter: /words or /regex, /!regex leaves out", "filter", "/", True),
    Key("colon", "command", "Type a command", "command", ":", True),
    Key("question_mark", "help", "This help", "help", "?"),
    Key("ctrl+r", "retry", "Ask the cluster again now"),
    Key("q", "quit_or_back", "Back; at home: leave"),
    Key("ctrl+c", "", "Close what asks something; else leave at once; jobs run on"),
)
"""In every view."""

MOVING = (
    Key("j,down", "", "Down", label="j ↓"),
    Key("k,up", "", "Up", label="k ↑"),
    Key("g,home", "", "First row", label="g"),
    Key("G,end", "", "Last row", label="G"),
    Key("ctrl+f,pagedown", "", "Page down", label="^f"),
    Key("ctrl+b,pageup", "", "Page up", label="^b"),
)
"""In every table. Only for the help: the table binds them itself."""

JOBS = (
    Key("enter", "", "Open the job: instances, conditions, events", "job"),
    Key("l", "logs", "Logs, live", "logs"),
    Key("m", "curves", "Curves: loss and whatever else it writes", "curves"),
    Key("n", "new_job", "New job", "new"),
    Key("ctrl+d", "delete", "Delete, after a question", "delete"),
    Key("space", "", "Mark; delete then means all that are marked"),
    Key("0", "all_namespaces", "All namespaces, and back"),
    Key("N", "sort('name')", "Sort by name; again turns it round"),
    Key("A", "sort('age')", "Sort by age"),
    Key("S", "sort('status')", "Sort by status"),
    Key("tab", "next_view", "Nodes", "nodes"),
)
"""In the list of jobs."""

NODES = (
    Key("enter", "", "Go to the job that holds most of this node"),
    Key("N", "sort('name')", "Sort by name; again turns it round"),
    Key("1", "sort('free')", "Sort by free GPUs", "by free"),
    Key("tab", "next_view", "Jobs", "jobs"),
)
"""In the list of nodes."""

CONTEXTS = (
    Key("enter", "", "Go to this cluster", "go there"),
    Key("N", "sort('name')", "Sort by name; again turns it round"),
)
"""In the list of contexts."""

JOB = (
    Key("enter,l", "logs", "Logs of the instance under the cursor", "logs", "l"),
    Key("m", "curves", "Curves", "curves"),
    Key("W", "why", "Why it waits, fails or restarts, and what would help", "why"),
    Key("y", "yaml", "The job's object as YAML", "yaml"),
    Key("ctrl+d", "delete", "Delete, after a question", "delete"),
    Key("tab", "next_pane", "Next pane", "pane"),
)
"""In one job."""

LOGS = (
    Key("r", "ranks", "Ranks: enter shows one, space marks several", "ranks"),
    Key("full_stop", "step(1)", "Next rank", "next", ". ,"),
    Key("comma", "step(-1)", "Rank before", label=","),
    Key("a", "all", "All ranks, merged by time", "all"),
    Key("s", "split", "One more rank beside this one; after four, one again", "split"),
    Key("tab", "next_pane", "Next pane"),
    Key("n", "", "Next line that matches the filter; N the one before", "match", "n N"),
    Key("x", "", "Lines that match only, or all lines", label="x"),
    Key("G", "", "Newest line, and follow", "follow"),
    Key("w", "", "Wrap long lines", "wrap"),
    Key("t", "", "Times", "times"),
    Key("f", "full", "Nothing but the log", "full"),
    Key("p", "previous", "The run before the last restart, and back", "previous"),
    Key("0", "window(0)", "The last 2,000 lines of each rank"),
    Key("1", "window(1)", "From the start"),
    Key("2", "window(2)", "The last minute; 3 five, 4 fifteen, 5 thirty, 6 an hour", label="2 … 6"),
    Key("3", "window(3)", "The last 5 minutes"),
    Key("4", "window(4)", "The last 15 minutes"),
    Key("5", "window(5)", "The last 30 minutes"),
    Key("6", "window(6)", "The last hour"),
    Key("C", "", "Clear; again brings it back", label="C"),
    Key("m", "", "Draw a line, to see what comes after it", label="m"),
    Key("c", "", "Copy what is on screen", label="c"),
    Key("ctrl+s", "", "Save to a file, bytes as they came"),
)
"""In the logs of a job. Those without an action the log itself binds."""

CURVES = (
    Key("j,down", "move(1)", "Next chart", "next", "j"),
    Key("k,up", "move(-1)", "Chart before", label="k"),
    Key("enter", "full", "This chart alone, and back", "full"),
    Key("h,left", "", "Read the value at the cursor; H and L take big steps", "read", "h l"),
    Key("x", "", "Axis: step, time since start, time of day", "axis"),
    Key("y", "", "Logarithmic scale", "log"),
    Key("plus,minus", "", "Smoother, less smooth", "smooth", "+ -"),
    Key("0", "", "As it was at first"),
)
"""In the curves of a job."""

NEW_JOB = (
    Key("tab", "", "Next field; shift+tab the one before", "next", "tab"),
    Key("ctrl+n,pagedown", "section(1)", "Next part of the form"),
    Key("ctrl+p,pageup", "section(-1)", "Part before"),
    Key("left,right", "", "Another answer; enter shows all of them", "choose", "← →"),
    Key("ctrl+o", "create", "Go to the button; there again: create the job", "create"),
    Key("ctrl+t", "check", "Ask the server whether it would; nothing is created", "check"),
    Key("ctrl+y", "yaml", "The job as YAML, and back", "yaml"),
    Key("ctrl+s", "keep", "Keep what is typed as a draft", "draft"),
    Key("escape", "leave", "Leave; asks when something was typed", "back", "esc"),
)
"""In the new-job form."""

TEXT = (Key("j,down", "", "Down", label="j ↓"), Key("k,up", "", "Up", label="k ↑"))
"""In plain text: YAML."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something to type after `:`."""

    name: str
    aliases: tuple[str, ...]
    argument: str
    """What follows it, in words; empty when nothing does."""
    words: str


COMMANDS = (
    Command("jobs", ("job", "j"), "", "The jobs"),
    Command("nodes", ("node", "no"), "", "The nodes and who holds their GPUs"),
    Command("ns", ("namespace",), "NAME, or all", "Jobs of another namespace"),
    Command("ctx", ("context", "contexts"), "NAME, or none", "Another cluster; alone: which there are"),
    Command("new", ("submit",), "", "New job"),
    Command("logs", ("log",), "JOB", "Logs of a job"),
    Command("curves", ("curve",), "JOB", "Curves of a job"),
    Command("why", (), "JOB", "Why a job waits, fails or restarts"),
    Command("theme", (), "NAME", "Another theme"),
    Command("help", ("h",), "", "The keys"),
    Command("quit", ("q", "q!"), "", "Leave"),
)
"""What `:` understands."""


def find_command(word: str) -> Command | None:
    """Return the command that a word names, by its name or an alias."""
    return next((each for each in COMMANDS if word == each.name or word in each.aliases), None)
