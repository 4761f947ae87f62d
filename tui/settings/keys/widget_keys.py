"""Keys of widgets and dialogs; each runs an `action_…` method of its owner.

The keys of a view are declared with the view, see `tui.screens`.
"""

from __future__ import annotations

from tui.settings.keys.key import Key

STRIP = (
    Key("strip.left", "h,left", "step(-1)", "Left"),
    Key("strip.right", "l,right", "step(1)", "Right"),
    Key("strip.down", "j,down", "step_rows(1)", "Down"),
    Key("strip.up", "k,up", "step_rows(-1)", "Up"),
    Key("strip.first", "g,home", "go(0)", "First node"),
    Key("strip.last", "G,end", "go(-1)", "Last node"),
    Key("strip.open", "enter", "open", "Show only the node's jobs; again: open the node", "its jobs"),
)
# The log inside has the keys of `tui.settings.keys.TAIL`.
JOB_PANE = (
    Key("job_pane.open", "enter", "open_logs", "The logs in full", "logs in full"),
    Key("job_pane.next_rank", "full_stop", "step_rank(1)", "Next rank", "next rank"),
    Key("job_pane.previous_rank", "comma", "step_rank(-1)", "Previous rank"),
)
# Fields have the keys of any form: tab, the arrows, enter.
NEW_JOB = (
    Key("new.next_section", "ctrl+n,pagedown", "section(1)", "Next section"),
    Key("new.previous_section", "ctrl+p,pageup", "section(-1)", "Previous section"),
    Key("new.create", "ctrl+o", "create", "Create the job (asks first)", "create"),
    Key("new.dry_run", "ctrl+t", "dry_run", "Dry run on the server; creates nothing", "dry run"),
    Key("new.yaml", "ctrl+y", "yaml", "YAML (toggle)", "yaml"),
    Key("new.edit_yaml", "e", "edit_yaml", "Edit the YAML, while it has the focus"),
    Key("new.save_draft", "ctrl+s", "save_draft", "Save as a draft", "draft"),
    Key("new.import", "f3", "import", "Import a YAML file", "import"),
    Key("new.git_login", "f4", "git_credentials", "User and password for the git repository"),
    Key("new.leave", "escape", "leave", "Back (asks first if there are unsaved changes)", "back"),
)
# In whatever scrolls as a text: a log, a YAML, a dialog.
SCROLL = (
    Key("scroll.down", "j,down", "scroll(1)", "Down"),
    Key("scroll.up", "k,up", "scroll(-1)", "Up"),
    Key("scroll.page_down", "ctrl+f,pagedown,space", "page(1)", "Page down"),
    Key("scroll.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("scroll.half_down", "ctrl+d", "page(0.5)", "Half a page down"),
    Key("scroll.half_up", "ctrl+u", "page(-0.5)", "Half a page up"),
    Key("scroll.start", "g,home", "end(-1)", "Top; of a log, its oldest line"),
    Key("scroll.end", "G,end", "end(1)", "Bottom; of a log, its newest line, and follow"),
)
TEXT = (
    Key("text.left", "left", "side(-1)", "Left"),
    Key("text.right", "right", "side(1)", "Right"),
    Key("text.next", "n", "match(1)", "Next match", "match"),
    Key("text.previous", "N", "match(-1)", "Previous match"),
    Key("text.wrap", "w", "wrap", "Wrap long lines (toggle)", "wrap"),
)

TABLE = (
    Key("table.down", "j,down", "move(1)", "Down"),
    Key("table.up", "k,up", "move(-1)", "Up"),
    Key("table.first", "g,home", "go(0)", "First row"),
    Key("table.last", "G,end", "go(-1)", "Last row"),
    Key("table.page_down", "ctrl+f,pagedown", "page(1)", "Page down"),
    Key("table.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("table.open", "enter", "open", "Open"),
    Key("table.mark", "space", "mark", "Mark (toggle)"),
    Key("table.mark_range", "V,ctrl+@", "mark_range", "Mark the range up to here"),
    Key("table.clear_marks", "U,ctrl+backslash", "clear_marks", "Clear marks"),
    Key("table.next_column", "full_stop,shift+right", "select_column(1)", "Select the next column"),
    Key("table.previous_column", "comma,shift+left", "select_column(-1)", "Select the previous column"),
    Key(
        "table.sort_name",
        "N",
        "sort_first(('name', 'user', 'about', 'job', 'instance'))",
        "Sort by name (press again to reverse)",
    ),
    Key(
        "table.sort_age",
        "A",
        "sort_first(('age', 'since', 'time', 'ended'))",
        "Sort by age (press again to reverse)",
    ),
    Key(
        "table.sort_status",
        "S",
        "sort_first(('status', 'type', 'event'))",
        "Sort by status (press again to reverse)",
    ),
    Key("table.sort", "O", "sort_selected", "Sort by the selected column (press again to reverse)"),
    Key("table.wide", "ctrl+w", "toggle_wide", "Wide columns (toggle)"),
    Key("table.right", "right", "scroll_columns(1)", "Scroll wide columns right"),
    Key("table.left", "left", "scroll_columns(-1)", "Scroll wide columns left"),
)
LOG = (
    Key("log.left", "h,left", "side(-1)", "Left"),
    Key("log.right", "l,right", "side(1)", "Right"),
    Key("log.wrap", "w", "switch('wraps')", "Wrap long lines (toggle)", "wrap"),
    Key("log.times", "t", "switch('shows_times')", "Timestamps (toggle)", "times"),
    Key("log.context", "x", "switch('hides')", "Only matching lines (toggle)"),
    Key("log.next", "n", "match(1)", "Next match", "match"),
    Key("log.previous", "N", "match(-1)", "Previous match"),
    Key("log.clear", "C", "clear", "Clear (toggle)"),
    Key("log.mark", "M", "mark", "Mark: draw a line below the newest"),
    Key("log.copy", "c", "copy", "Copy the visible lines"),
    Key("log.save", "ctrl+s", "save", "Save the whole log to a file, unchanged"),
)
CHART = (
    Key("chart.left", "h,left", "cursor(-1)", "Cursor left", "read"),
    Key("chart.right", "l,right", "cursor(1)", "Cursor right"),
    Key("chart.far_left", "H,shift+left", "cursor(-10)", "Cursor 10 points left"),
    Key("chart.far_right", "L,shift+right", "cursor(10)", "Cursor 10 points right"),
    Key("chart.x_axis", "x", "x_axis", "X axis: step, elapsed time, time of day, epoch, tokens", "axis"),
    Key("chart.zoom_in", "i", "zoom(0.5)", "Zoom in around the cursor, which scrolls at the edges", "zoom"),
    Key("chart.zoom_out", "o", "zoom(2)", "Zoom out"),
    Key("chart.log", "y", "log", "Logarithmic scale (toggle)", "log"),
    Key("chart.clip", "O", "clip", "Fit the y axis to all but the outliers (toggle)", "outliers"),
    Key("chart.smoother", "plus,equals_sign", "smooth(1)", "More smoothing", "smooth"),
    Key("chart.rougher", "minus", "smooth(-1)", "Less smoothing"),
    Key("chart.reset", "0", "reset", "Reset the chart"),
)
PROMPT = (
    Key("prompt.submit", "enter", "submit", "Apply the filter, or run the command"),
    Key("prompt.close", "escape", "close", "Cancel"),
    Key("prompt.accept", "tab", "accept", "Accept the suggestion"),
    Key("prompt.older", "up", "older(1)", "Previous entry"),
    Key("prompt.newer", "down", "older(-1)", "Next entry"),
)
DIALOG = (
    Key("dialog.escape", "escape", "escape", "Cancel"),
    Key("dialog.previous", "left,up,h,k", "app.focus_previous", "Previous button"),
    Key("dialog.next", "right,down,l,j", "app.focus_next", "Next button"),
)
DELETE = (Key("delete.propagation", "p", "propagation", "Change the propagation policy"),)
JOB_COMMANDS = (
    Key("job_commands.copy", "c,enter", "copy", "Copy the line", "copy"),
    Key("job_commands.close", "escape,q,X", "close", "Close", "close"),
)
DETAIL = (Key("detail.close", "escape,q,enter", "close", "Close", "closes"),)
HELP = (Key("help.close", "escape,q,question_mark", "close", "Close"),)
