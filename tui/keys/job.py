"""Keys of the views of one job."""

from __future__ import annotations

from tui.keys.key import Key

JOB = (
    Key("job.logs", "enter,l", "logs", "Logs of the instance under the cursor", "logs", right="logs"),
    Key("job.previous", "p", "previous_logs", "Logs of its run before the last restart", right="logs"),
    Key("job.curves", "m", "curves", "Curves", "curves"),
    Key("job.why", "W", "why", "Why it waits, fails or restarts, and what would help", "why"),
    Key("job.events", "v", "events", "The events alone; again: all panes. enter shows one in full", "events"),
    Key("job.yaml", "y", "yaml", "YAML of the pod under the cursor; from other panes the job's", "yaml"),
    Key("job.job_yaml", "Y", "job_yaml", "The job's object as YAML"),
    Key("job.shell", "s", "shell", "A shell in the instance under the cursor", "shell", True, right="shell"),
    Key(
        "job.forward",
        "F",
        "forward",
        "Forward its TensorBoard to this machine; again ends that",
        right="forward",
    ),
    Key("job.clone", "b", "clone", "A new job like this one", "clone", True, right="clone"),
    Key("job.hold", "H", "hold", "Suspend, after a question", "", True, right="suspend"),
    Key("job.resume", "R", "resume", "Resume, after a question", "", True, right="resume"),
    Key("job.delete", "ctrl+d", "delete", "Delete, after a question", "delete", True, right="delete"),
    Key("job.next_pane", "tab", "next_pane", "Next pane", "pane"),
    Key("job.pane_before", "shift+tab", "next_pane(-1)", "Pane before"),
    Key("job.full", "f", "full", "The pane with the focus alone, and all again", "full"),
)
"""In one job."""

LOGS = (
    Key("logs.ranks", "r", "ranks", "Ranks: enter shows one, space marks several", "ranks"),
    Key("logs.next", "full_stop", "step(1)", "Next rank", "next"),
    Key("logs.before", "comma", "step(-1)", "Rank before"),
    Key("logs.all", "a", "all", "All ranks, merged by time", "all"),
    Key("logs.split", "s", "split", "One more rank beside this one; after four, one again", "split"),
    Key("logs.next_pane", "tab", "next_pane", "Next pane"),
    Key("logs.full", "f", "full", "Nothing but the log", "full"),
    Key("logs.previous_run", "p", "previous", "The run before the last restart, and back", "previous"),
    Key("logs.window_0", "0", "window(0)", "The last 2,000 lines of each rank"),
    Key("logs.window_1", "1", "window(1)", "From the start"),
    Key("logs.window_2", "2", "window(2)", "The last minute"),
    Key("logs.window_3", "3", "window(3)", "The last 5 minutes"),
    Key("logs.window_4", "4", "window(4)", "The last 15 minutes"),
    Key("logs.window_5", "5", "window(5)", "The last 30 minutes"),
    Key("logs.window_6", "6", "window(6)", "The last hour"),
)
"""In the logs of a job."""

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
    Key("log.wrap", "w", "switch('wraps')", "Wrap long lines", "wrap"),
    Key("log.times", "t", "switch('shows_times')", "Times", "times"),
    Key("log.context", "x", "switch('hides')", "Lines that match only, or all lines"),
    Key("log.next", "n", "match(1)", "Next line that matches the filter", "match"),
    Key("log.previous", "N", "match(-1)", "The match before"),
    Key("log.clear", "C", "clear", "Clear; again brings it back"),
    Key("log.mark", "m", "mark", "Draw a line, to see what comes after it"),
    Key("log.copy", "c", "copy", "Copy what is on screen"),
    Key("log.save", "ctrl+s", "save", "Save to a file, bytes as they came"),
)
"""In the text of a log; it binds them itself."""

CURVES = (
    Key("curves.next", "j,down", "move(1)", "Next chart", "next"),
    Key("curves.before", "k,up", "move(-1)", "Chart before"),
    Key("curves.full", "enter", "full", "This chart alone, and back", "full"),
)
"""In the curves of a job."""

CHART = (
    Key("chart.left", "h,left", "cursor(-1)", "Read the value to the left", "read"),
    Key("chart.right", "l,right", "cursor(1)", "Read the value to the right"),
    Key("chart.far_left", "H,shift+left", "cursor(-10)", "Read far to the left"),
    Key("chart.far_right", "L,shift+right", "cursor(10)", "Read far to the right"),
    Key("chart.x_axis", "x", "x_axis", "Axis: step, time since start, time of day", "axis"),
    Key("chart.log", "y", "log", "Logarithmic scale", "log"),
    Key("chart.smoother", "plus,equals_sign", "smooth(1)", "Smoother", "smooth"),
    Key("chart.rougher", "minus", "smooth(-1)", "Less smooth"),
    Key("chart.reset", "0", "reset", "As it was at first"),
)
"""In one chart; it binds them itself."""
