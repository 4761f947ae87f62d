"""The views of one job: its panes, logs and curves.

They show what their feeds publish and ask the app for everything else. Their keys are declared here,
free of Textual: the console imports a view when it is first shown.
"""

from __future__ import annotations

from tui.settings.keys import CHART, LOG, SCROLL, Key, ViewDeclaration

JOB = ViewDeclaration(
    "job",
    "One job",
    keys=(
        Key("job.only_events", "v", "only_events", "Only events (toggle)", "events"),
        Key("job.next_pane", "tab", "next_pane", "Next pane", "pane"),
        Key("job.previous_pane", "shift+tab", "next_pane(-1)", "Previous pane"),
        Key("job.full", "f", "full", "Full screen (toggle)", "full"),
    ),
    has_job_rows=True,
)
LOGS = ViewDeclaration(
    "logs",
    "Logs",
    keys=(
        Key("logs.ranks", "r", "ranks", "Pick ranks: enter shows one, space marks several", "ranks"),
        Key("logs.next_rank", "full_stop", "step(1)", "Next rank", "next"),
        Key("logs.previous_rank", "comma", "step(-1)", "Previous rank"),
        Key("logs.all", "a", "all", "All ranks, merged by time", "all"),
        Key("logs.split", "s", "split", "Split: one more rank beside this one (up to 4)", "split"),
        Key("logs.next_pane", "tab", "next_pane", "Next pane"),
        Key("logs.full", "f", "full", "Full screen (toggle)", "full"),
        Key(
            "logs.previous_run",
            "p",
            "previous_run",
            "Previous run, before the last restart (toggle)",
            "previous",
        ),
        Key("logs.window_0", "0", "window(0)", "Last 2,000 lines of each rank"),
        Key("logs.window_1", "1", "window(1)", "From the start; reads on as you scroll"),
        Key("logs.window_2", "2", "window(2)", "Last minute"),
        Key("logs.window_3", "3", "window(3)", "Last 5 minutes"),
        Key("logs.window_4", "4", "window(4)", "Last 15 minutes"),
        Key("logs.window_5", "5", "window(5)", "Last 30 minutes"),
        Key("logs.window_6", "6", "window(6)", "Last hour"),
    ),
    focused=(*SCROLL, *LOG),
)
CURVES = ViewDeclaration(
    "curves",
    "Curves",
    keys=(
        Key("curves.next", "j,down", "move(1)", "Next chart", "next"),
        Key("curves.previous", "k,up", "move(-1)", "Previous chart"),
        Key("curves.full", "enter", "full", "Full screen (toggle)", "full"),
    ),
    focused=CHART,
)
VIEWS = (JOB, LOGS, CURVES)
