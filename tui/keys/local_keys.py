"""Keys that one view, widget or dialog handles itself, beside the actions of `tui.keys.actions`.

Each runs an `action_…` method of its owner; an id is the owner, a dot, and what it does.
"""

from __future__ import annotations

from collections.abc import Mapping

from tui.keys.key import Key


def _sort(view: str, keys: str, column: str, what: str, footer: str = "") -> Key:
    help_text = f"Sort by {what} (press again to reverse)"
    return Key(f"{view}.sort_{column}", keys, f"sort('{column}')", help_text, footer)


JOBS = (
    Key("jobs.mine", "M", "mine", "Only my jobs (toggle)", "mine"),
    Key("jobs.faults", "F", "faults", "Only failed, restarting, silent or stuck jobs (toggle)", "faults"),
    Key("jobs.older", "o", "older", "Include jobs that finished more than 7 days ago (toggle)"),
    Key("jobs.loss", "x", "loss", "The loss of running jobs (toggle)"),
    Key("jobs.nodes_pane", "1", "focus_pane('nodes')", "Go to the nodes above the list"),
    Key("jobs.list_pane", "2", "focus_pane('list')", "Go to the list"),
    Key("jobs.job_pane", "3", "focus_pane('job')", "Go to what the job says"),
    _sort("jobs", "N", "name", "name"),
    _sort("jobs", "A", "age", "age"),
    _sort("jobs", "S", "status", "status"),
)
STRIP = (
    Key("strip.left", "h,left", "step(-1)", "Left"),
    Key("strip.right", "l,right", "step(1)", "Right"),
    Key("strip.down", "j,down", "step_rows(1)", "Down"),
    Key("strip.up", "k,up", "step_rows(-1)", "Up"),
    Key("strip.first", "g,home", "go(0)", "First node"),
    Key("strip.last", "G,end", "go(-1)", "Last node"),
    Key(
        "strip.open",
        "enter",
        "open",
        "Only the jobs on the node; again: the node in the list of nodes",
        "its jobs",
    ),
)
JOB_PANE = (
    Key("job_pane.open", "enter", "open_logs", "The logs in full", "logs in full"),
    Key("job_pane.next_rank", "full_stop", "step_rank(1)", "Next rank", "next rank"),
    Key("job_pane.previous_rank", "comma", "step_rank(-1)", "Previous rank"),
)
"""The log in it has the keys of any log."""
NODES = (
    Key("nodes.largest_job", "o", "largest_job", "Open the job that holds most of the node", "its job"),
    _sort("nodes", "1", "free", "free GPUs", "by free"),
    _sort("nodes", "N", "name", "name"),
)
NODE_GPUS = (
    _sort("node_gpus", "A", "since", "how long it is held"),
    Key("node_gpus.next_pane", "tab", "next_pane", "What each GPU does; again: who holds them", "GPUs"),
)
USERS = (
    _sort("users", "1", "idle_hours", "idle GPU-hours", "by idle"),
    _sort("users", "N", "user", "user"),
)
USAGE = (
    Key("usage.gpu", "enter,d", "gpu", "All that is known of the rank's GPU", "GPU"),
    _sort("usage", "1", "util", "utilisation", "by utilisation"),
)
EVENTS = (
    Key("events.open_event", "enter,d", "open_event", "Open the event's job, otherwise the event", "open"),
    Key("events.whole_event", "v", "whole_event", "Show the event in full", "whole"),
    Key("events.warnings", "F", "warnings", "Only warnings (toggle)", "warnings"),
    _sort("events", "A", "age", "age"),
    _sort("events", "N", "about", "involved object"),
    _sort("events", "S", "type", "type"),
)
VOLUMES = (
    _sort("volumes", "N", "name", "name"),
    _sort("volumes", "A", "age", "age"),
    _sort("volumes", "S", "status", "status"),
)
NAMESPACES = (
    _sort("namespaces", "N", "name", "name"),
    _sort("namespaces", "A", "age", "age"),
    _sort("namespaces", "1", "held", "GPUs held", "by GPUs"),
)
CONTEXTS = (_sort("contexts", "N", "name", "name"),)
JOB = (
    Key("job.only_events", "v", "only_events", "Only events (toggle)", "events"),
    Key("job.next_pane", "tab", "next_pane", "Next pane", "pane"),
    Key("job.previous_pane", "shift+tab", "next_pane(-1)", "Previous pane"),
    Key("job.full", "f", "full", "Full screen (toggle)", "full"),
)
LOGS = (
    Key("logs.ranks", "r", "ranks", "Pick ranks: enter shows one, space marks several", "ranks"),
    Key("logs.next_rank", "full_stop", "step(1)", "Next rank", "next"),
    Key("logs.previous_rank", "comma", "step(-1)", "Previous rank"),
    Key("logs.all", "a", "all", "All ranks, merged by time", "all"),
    Key("logs.split", "s", "split", "Split: one more rank beside this one (up to 4)", "split"),
    Key("logs.next_pane", "tab", "next_pane", "Next pane"),
    Key("logs.full", "f", "full", "Full screen (toggle)", "full"),
    Key(
        "logs.previous_run", "p", "previous_run", "Previous run, before the last restart (toggle)", "previous"
    ),
    Key("logs.window_0", "0", "window(0)", "Last 2,000 lines of each rank"),
    Key("logs.window_1", "1", "window(1)", "From the start"),
    Key("logs.window_2", "2", "window(2)", "Last minute"),
    Key("logs.window_3", "3", "window(3)", "Last 5 minutes"),
    Key("logs.window_4", "4", "window(4)", "Last 15 minutes"),
    Key("logs.window_5", "5", "window(5)", "Last 30 minutes"),
    Key("logs.window_6", "6", "window(6)", "Last hour"),
)
CURVES = (
    Key("curves.next", "j,down", "move(1)", "Next chart", "next"),
    Key("curves.previous", "k,up", "move(-1)", "Previous chart"),
    Key("curves.full", "enter", "full", "Full screen (toggle)", "full"),
)
NEW_JOB = (
    Key("new.next_section", "ctrl+n,pagedown", "section(1)", "Next section"),
    Key("new.previous_section", "ctrl+p,pageup", "section(-1)", "Previous section"),
    Key("new.create", "ctrl+o", "create", "Create the job (asks first)", "create"),
    Key("new.dry_run", "ctrl+t", "dry_run", "Dry run on the server; creates nothing", "dry run"),
    Key("new.yaml", "ctrl+y", "yaml", "YAML (toggle)", "yaml"),
    Key("new.edit_yaml", "e", "edit_yaml", "Edit the YAML, while it has the focus"),
    Key("new.save_draft", "ctrl+s", "save_draft", "Save as a draft", "draft"),
    Key("new.save_template", "f2", "save_template", "Save as a template", "template"),
    Key("new.import", "f3", "import", "Import a YAML file", "import"),
    Key("new.git_login", "f4", "git_login", "User and password for the git repository"),
    Key("new.jump", "ctrl+g", "jump", "Jump to a field by its letter"),
    Key("new.leave", "escape", "leave", "Back (asks first if there are unsaved changes)", "back"),
)
"""Fields have the keys of any form: tab, the arrows, enter."""
TEXT = (
    Key("text.down", "j,down", "scroll(1)", "Down"),
    Key("text.up", "k,up", "scroll(-1)", "Up"),
    Key("text.page_down", "ctrl+f,pagedown,space", "page(1)", "Page down"),
    Key("text.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("text.half_down", "ctrl+d", "page(0.5)", "Half a page down"),
    Key("text.half_up", "ctrl+u", "page(-0.5)", "Half a page up"),
    Key("text.start", "g,home", "end(-1)", "Top"),
    Key("text.end", "G,end", "end(1)", "Bottom"),
    Key("text.left", "h,left", "side(-1)", "Left"),
    Key("text.right", "l,right", "side(1)", "Right"),
    Key("text.next", "n", "match(1)", "Next match", "match"),
    Key("text.previous", "N", "match(-1)", "Previous match"),
    Key("text.wrap", "w", "wrap", "Wrap long lines (toggle)", "wrap"),
)
YAML = (
    Key("yaml.managed", "m", "managed", "Show managedFields (toggle)", "managed"),
    Key("yaml.secrets", "x", "secrets", "Show secrets (asks first; toggle)", "secrets"),
    Key("yaml.live", "r", "live", "Auto-refresh (toggle)", "live"),
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
    Key("table.sort", "O", "sort_selected", "Sort by the selected column (press again to reverse)"),
    Key("table.wide", "ctrl+w", "toggle_wide", "Wide columns (toggle)"),
    Key("table.right", "right", "scroll_columns(1)", "Scroll wide columns right"),
    Key("table.left", "left", "scroll_columns(-1)", "Scroll wide columns left"),
)
LOG = (
    Key("log.down", "j,down", "move(1)", "Down"),
    Key("log.up", "k,up", "move(-1)", "Up"),
    Key("log.page_down", "ctrl+f,pagedown,space", "page(1)", "Page down"),
    Key("log.page_up", "ctrl+b,pageup", "page(-1)", "Page up"),
    Key("log.half_down", "ctrl+d", "page(0.5)", "Half a page down"),
    Key("log.half_up", "ctrl+u", "page(-0.5)", "Half a page up"),
    Key("log.start", "g,home", "start", "Oldest line"),
    Key("log.end", "G,end", "end", "Newest line, and follow", "follow"),
    Key("log.left", "h,left", "side(-1)", "Left"),
    Key("log.right", "l,right", "side(1)", "Right"),
    Key("log.wrap", "w", "switch('wraps')", "Wrap long lines (toggle)", "wrap"),
    Key("log.times", "t", "switch('shows_times')", "Timestamps (toggle)", "times"),
    Key("log.context", "x", "switch('hides')", "Only matching lines (toggle)"),
    Key("log.next", "n", "match(1)", "Next match", "match"),
    Key("log.previous", "N", "match(-1)", "Previous match"),
    Key("log.clear", "C", "clear", "Clear (toggle)"),
    Key("log.mark", "m", "mark", "Mark: draw a line below the newest"),
    Key("log.copy", "c", "copy", "Copy what is on screen"),
    Key("log.save", "ctrl+s", "save", "Save all of the log to a file, byte for byte"),
)
CHART = (
    Key("chart.left", "h,left", "cursor(-1)", "Cursor left", "read"),
    Key("chart.right", "l,right", "cursor(1)", "Cursor right"),
    Key("chart.far_left", "H,shift+left", "cursor(-10)", "Cursor 10 points left"),
    Key("chart.far_right", "L,shift+right", "cursor(10)", "Cursor 10 points right"),
    Key("chart.x_axis", "x", "x_axis", "X axis: step, elapsed time, time of day", "axis"),
    Key("chart.log", "y", "log", "Logarithmic scale (toggle)", "log"),
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
    Key("dialog.escape", "escape", "escape", "Give the safe answer"),
    Key("dialog.previous", "left,up,h,k", "app.focus_previous", "Previous button"),
    Key("dialog.next", "right,down,l,j", "app.focus_next", "Next button"),
)
DELETE = (Key("delete.propagation", "p", "propagation", "Propagation: what becomes of the pods"),)
DETAIL = (
    Key("detail.close", "escape,q,enter", "close", "Close", "closes"),
    Key("detail.down", "j,down", "scroll(1)", "Down"),
    Key("detail.up", "k,up", "scroll(-1)", "Up"),
)
HELP = (
    Key("help.close", "escape,q,question_mark", "close", "Close"),
    Key("help.down", "j,down", "scroll(1)", "Down"),
    Key("help.up", "k,up", "scroll(-1)", "Up"),
)

LOCAL_KEYS: Mapping[str, tuple[Key, ...]] = {
    "jobs": JOBS,
    "nodes": NODES,
    "node_gpus": NODE_GPUS,
    "users": USERS,
    "usage": USAGE,
    "events": EVENTS,
    "volumes": VOLUMES,
    "namespaces": NAMESPACES,
    "contexts": CONTEXTS,
    "job": JOB,
    "logs": LOGS,
    "curves": CURVES,
    "text": TEXT,
    "yaml": (*TEXT, *YAML),
}
"""The keys that each view handles itself, by the view's `NAME`."""
