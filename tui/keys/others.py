"""Keys of the new-job form, of text, and of the help."""

from __future__ import annotations

from tui.keys.key import Key

NEW_JOB = (
    Key("new.next_section", "ctrl+n,pagedown", "section(1)", "Next part of the form"),
    Key("new.section_before", "ctrl+p,pageup", "section(-1)", "Part before"),
    Key("new.create", "ctrl+o", "create", "Go to the button; there again: create the job", "create"),
    Key("new.check", "ctrl+t", "check", "Ask the server whether it would; nothing is created", "check"),
    Key("new.yaml", "ctrl+y", "yaml", "The job as YAML, and back", "yaml"),
    Key("new.keep", "ctrl+s", "keep", "Keep what is typed as a draft", "draft"),
    Key("new.leave", "escape", "leave", "Leave; asks when something was typed", "back"),
)
"""In the new-job form. Fields have the keys of any form: tab, the arrows, enter."""

TEXT = (
    Key("text.down", "j,down", "scroll(1)", "Down"),
    Key("text.up", "k,up", "scroll(-1)", "Up"),
)
"""In plain text."""

HELP = (
    Key("help.close", "escape,q,question_mark", "close", "Close"),
    Key("help.down", "j,down", "scroll(1)", "Down"),
    Key("help.up", "k,up", "scroll(-1)", "Up"),
)
"""In the help."""
