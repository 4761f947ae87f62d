"""Functions of the actions, one each, in a file for each subject.

May use everything below the app; draws nothing itself.
"""

from __future__ import annotations

from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest
from tui.settings.keys import Action


def run_action(action: Action, console: BaseConsole, request: ActionRequest) -> None:
    """Call the function of an action. Its file is imported on first use: a console has to open fast."""
    find_functions(action)[action.name](console, request)


def find_functions(action: Action) -> Functions:
    """Import the file of an action's subject and return its functions."""
    match action.subject:
        case "commands":
            from tui.verbs.commands import FUNCTIONS
        case "context":
            from tui.verbs.context import FUNCTIONS
        case "export":
            from tui.verbs.export import FUNCTIONS
        case "jobs":
            from tui.verbs.jobs import FUNCTIONS
        case "navigate":
            from tui.verbs.navigate import FUNCTIONS
        case "nodes":
            from tui.verbs.nodes import FUNCTIONS
        case "notices":
            from tui.verbs.notices import FUNCTIONS
        case "plugins":
            from tui.verbs.plugins import run_plugin

            return {action.name: run_plugin}
        case "pods":
            from tui.verbs.pods import FUNCTIONS
        case "runs":
            from tui.verbs.runs import FUNCTIONS
        case "window":
            from tui.verbs.window import FUNCTIONS
        case "":
            return {}
    return FUNCTIONS
