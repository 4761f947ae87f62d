"""Keys that work in more than one view."""

from __future__ import annotations

from tui.keys.key import Key

EVERYWHERE = (
    Key("app.back", "escape", "back", "Back; first clears the filter", "back"),
    Key(
        "app.filter",
        "slash",
        "filter",
        "Filter what is shown; below is what can be typed",
        "filter",
        opens_prompt=True,
    ),
    Key("app.command", "colon", "command", "Type a command", "command", opens_prompt=True),
    Key("app.help", "question_mark", "help", "This help", "help"),
    Key("app.last_view", "minus", "last_view", "The view before this one, and back"),
    Key("app.palette", "ctrl+p", "palette", "Search all keys and commands"),
    Key("app.jump", "ctrl+g", "jump", "Jump: a letter for each place that can have the focus"),
    Key("app.copy", "c", "copy", "Copy the names of what is marked, or under the cursor"),
    Key("app.save", "ctrl+s", "save", "Save the table as CSV"),
    Key("app.preview", "z", "preview", "Show or hide the preview beside jobs and nodes, from 140 columns"),
    Key("app.retry", "ctrl+r", "retry", "Ask the cluster again now"),
    Key("app.quit_or_back", "q", "quit_or_back", "Back; at home: leave"),
    Key("app.suspend", "ctrl+z", "suspend", "To the shell; fg comes back"),
    Key("app.interrupt", "ctrl+c", "interrupt", "Close what asks something; else leave at once; jobs run on"),
)
"""In every view. The last is the application's own."""

TABLE = (
    Key("table.down", "j,down", "move(1)", "Down"),
    Key("table.up", "k,up", "move(-1)", "Up"),
    Key("table.first", "g,home", "go(0)", "First row"),
    Key("table.last", "G,end", "go(-1)", "Last row"),
    Key("table.page_down", "ctrl+f,pagedown", "page(1)", "Page down"),
    Key("table.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("table.choose", "enter", "choose", "Open"),
    Key("table.mark", "space", "mark", "Mark"),
    Key("table.mark_range", "V,ctrl+@", "mark_range", "Mark up to here"),
    Key("table.clear_marks", "U,ctrl+backslash", "clear_marks", "Clear marks"),
    Key("table.pick_next", "full_stop,shift+right", "pick(1)", "Pick the next column, to sort by"),
    Key("table.pick_before", "comma,shift+left", "pick(-1)", "Pick the column before"),
    Key("table.sort", "O", "sort_picked", "Sort by the column picked; again turns it round"),
    Key("table.wide", "ctrl+w", "toggle_wide", "All columns, whole; again as many as fit"),
    Key("table.right", "right", "scroll_columns(1)", "Columns to the right, when wide"),
    Key("table.left", "left", "scroll_columns(-1)", "Columns to the left, when wide"),
)
"""In every table; the table binds them."""

PROMPT = (
    Key("prompt.submit", "enter", "submit", "Keep the filter, or run the command as it is typed"),
    Key("prompt.close", "escape", "close", "Forget what is typed"),
    Key("prompt.accept", "tab", "accept", "Take the suggestion"),
    Key("prompt.older", "up", "older(1)", "What was typed before"),
    Key("prompt.newer", "down", "older(-1)", "What was typed after that"),
)
"""While a filter or a command is typed; the prompt binds them."""

DIALOG = (
    Key("dialog.escape", "escape", "escape", "The answer that takes nothing away"),
    Key("dialog.before", "left,up,h,k", "app.focus_previous", "Other button"),
    Key("dialog.next", "right,down,l,j", "app.focus_next", "Other button"),
)
"""In a question."""

DELETE = (Key("delete.propagation", "p", "propagation", "What becomes of the pods"),)
"""In the question before jobs are deleted, beside those of every question."""
