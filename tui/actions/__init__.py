"""Functions of the actions, one each, in a file for each subject.

May use everything below the app; draws nothing itself.
"""

from __future__ import annotations

from tui.keys import Action
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest


def run_action(action: Action, console: BaseConsole, request: ActionRequest) -> None:
    """Call the function of an action. Its file is imported on first use: a console has to open fast."""
    find_functions(action)[action.name](console, request)


def find_functions(action: Action) -> Functions:
    """Import the file of an action's subject and return its functions."""
    match action.subject:
        case "commands":
            from tui.actions.commands import FUNCTIONS
        case "context":
            from tui.actions.context import FUNCTIONS
        case "export":
            from tui.actions.export import FUNCTIONS
        case "jobs":
            from tui.actions.jobs import FUNCTIONS
        case "navigate":
            from tui.actions.navigate import FUNCTIONS
        case "nodes":
            from tui.actions.nodes import FUNCTIONS
        case "notices":
            from tui.actions.notices import FUNCTIONS
        case "plugins":
            from tui.actions.plugins import run_plugin

            return {action.name: run_plugin}
        case "pods":
            from tui.actions.pods import FUNCTIONS
        case "runs":
            from tui.actions.runs import FUNCTIONS
        case "window":
            from tui.actions.window import FUNCTIONS
        case "":
            return {}
    return FUNCTIONS
