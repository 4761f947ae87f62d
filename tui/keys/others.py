"""Keys of the new-job form, of text, and of the help."""

from __future__ import annotations

from tui.keys.key import Key

NEW_JOB = (
    Key("new.next_section", "ctrl+n,pagedown", "section(1)", "Next section"),
    Key("new.section_before", "ctrl+p,pageup", "section(-1)", "Previous section"),
    Key("new.create", "ctrl+o", "create", "Create the job (asks first)", "create"),
    Key("new.check", "ctrl+t", "check", "Dry run on the server; creates nothing", "check"),
    Key("new.yaml", "ctrl+y", "yaml", "YAML (toggle)", "yaml"),
    Key("new.keep", "ctrl+s", "keep", "Save as draft", "draft"),
    Key("new.jump", "ctrl+g", "jump", "Jump: a letter for each field"),
    Key("new.leave", "escape", "leave", "Back (asks first if there are unsaved changes)", "back"),
)
"""In the new-job form. Fields have the keys of any form: tab, the arrows, enter."""

TEXT = (
    Key("text.down", "j,down", "scroll(1)", "Down"),
    Key("text.up", "k,up", "scroll(-1)", "Up"),
    Key("text.page_down", "ctrl+f,pagedown,space", "page(1)", "Page down"),
    Key("text.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("text.half_down", "ctrl+d", "page(0.5)", "Half a page down"),
    Key("text.half_up", "ctrl+u", "page(-0.5)", "Half a page up"),
    Key("text.start", "g,home", "end(-1)", "Start"),
    Key("text.end", "G,end", "end(1)", "End"),
    Key("text.left", "h,left", "side(-1)", "Left"),
    Key("text.right", "l,right", "side(1)", "Right"),
    Key("text.next", "n", "match(1)", "Next match of what was typed after /", "match"),
    Key("text.previous", "N", "match(-1)", "The match before"),
    Key("text.wrap", "w", "wrap", "Break long lines, and back", "wrap"),
)
"""In text."""

YAML = (
    *TEXT,
    Key("yaml.managed", "m", "managed", "Fields of metadata.managedFields, and back", "managed"),
    Key("yaml.secrets", "x", "secrets", "Show secrets, after a question; again hides them", "secrets"),
    Key("yaml.live", "r", "live", "Follow changes, or stand still", "live"),
)
"""In an object's YAML."""

CARD = (
    Key("card.close", "escape,q,enter", "close", "Close", "closes"),
    Key("card.down", "j,down", "scroll(1)", "Down"),
    Key("card.up", "k,up", "scroll(-1)", "Up"),
)
"""In a text that lies over a view."""

HELP = (
    Key("help.close", "escape,q,question_mark", "close", "Close"),
    Key("help.down", "j,down", "scroll(1)", "Down"),
    Key("help.up", "k,up", "scroll(-1)", "Up"),
)
"""In the help."""
