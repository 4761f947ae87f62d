"""Run the user's plugins: programs with facts about the selected row as arguments."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath

from textual.notifications import SeverityLevel

from k8s.text.errors import KubeError
from k8s.text.home import expand_home
from k8s.text.sanitize import log_text, sanitize, sanitize_lines
from tui.screens.base.console import BaseConsole
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import View
from tui.settings.plugins_file import Plugin
from tui.terminal.pod_shell import exit_text, handed_over, run_program
from tui.text.instances import find_container, find_instance
from tui.widgets.table.table import Table

_VARIABLE = re.compile(r"\$(?:(!?)([A-Z][A-Z0-9_-]*)|\{(!?)([A-Z][\w%/:() -]*)\})")
# Variables of any row; without a value here they are refused, others are left to the program.
_KNOWN = (
    *("NAMESPACE", "NAME", "CONTEXT", "CLUSTER", "USER", "KUBECONFIG", "POD", "CONTAINER", "NODE"),
    *("FILTER", "RESOURCE_NAME", "RESOURCE_GROUP", "RESOURCE_VERSION"),
)
_INTERPRETERS = {
    *("sh", "ash", "bash", "dash", "fish", "ksh", "zsh", "perl", "python", "python3", "ruby", "node")
}
# These hand all their words to a shell.
_SHELL_WORDS = {
    *("eval", "ssh", "mosh", "su", "runuser", "watch", "tmux", "screen", "byobu", "zellij", "parallel"),
    *("script", "at", "batch", "expect", "entr", "hyperfine"),
}
# These run a part of a word; a whole word is an argument.
_RUN_WORDS = {
    *("awk", "gawk", "mawk", "nawk", "sed", "gsed", "jq", "yq", "php", "lua", "osascript", "Rscript", "env"),
    *(
        "vi",
        "vim",
        "nvim",
        "emacs",
        "gdb",
        "sqlite3",
        "psql",
        "mysql",
        "make",
        "xargs",
        "git",
        "rsync",
        "find",
    ),
}
# With such a flag these hand their words to a shell.
_ROOT, _SHELL_FLAG = {"sudo", "doas"}, re.compile(r"-\w*[si]\w*|--(?:shell|login)")
# In a word with these, a variable is a part of a script, whatever program runs it.
_SCRIPT_CHARACTERS = re.compile(r"[\s'\"`;|&<>(){}]")
_SCRIPT_FLAG = re.compile(r"-\w*[ce]")
# Has no meaning to any shell or interpreter.
_HARMLESS = re.compile(r"[\w.:/@%+=,][\w.:/@%+=,-]*|", re.ASCII)
_MOST_BYTES = 4 * 2**20
_MOST_NOTICE = 600
# Processes that a program leaves behind may hold its output open.
_LAST_OUTPUT_S = 1.0
_MOST_OUTPUTS = 10


class Refused(Exception):
    """A variable has no value, or one that must not be used; the message says why."""


def run_plugin(console: BaseConsole, request: ActionRequest) -> None:
    """Run a plugin on the selected row, after a confirmation if it wants one."""
    actions = console.context.actions
    plugin = actions.find(request.name) or actions.find_command(request.name)
    view = console.views.current
    if not isinstance(plugin, Plugin) or view is None:
        return
    if request.argument:
        _show_output(console, plugin, request.argument)
        return
    try:
        argv = substitute(plugin.argv, _facts(console, view, plugin.argv))
    except (Refused, KubeError) as error:
        console.notify(f"{error}", title=f"{plugin.title} was not run.", severity="warning")
        return
    argv[0] = str(expand_home(argv[0]))
    if shutil.which(argv[0]) is None:
        console.notify(
            f"There is no program {sanitize(argv[0])} on this machine, or it is not executable.",
            title=f"{plugin.title} was not run.",
            severity="error",
        )
        return

    def answered(answer: str | None = "do") -> None:
        if answer == "do":
            console.begin(_run, plugin, argv, group="plugin")

    if not plugin.asks_first:
        answered()
        return
    from tui.screens.dialogs.confirm import ConfirmScreen

    console.push_screen(ConfirmScreen(f"Run {plugin.title}?", shlex.join(argv), "Run"), answered)


def substitute(argv: Sequence[str], facts: Mapping[str, str]) -> list[str]:
    """Return the arguments with values in place of variables; each stays one argument.

    Raises:
        Refused: A variable has no value here, or a shell might run its value.
    """
    found = []
    for place, word in enumerate(argv):
        programs = {PurePath(each).name for each in argv[:place]}
        is_script = bool(programs & _INTERPRETERS) and _SCRIPT_FLAG.fullmatch(argv[place - 1]) is not None
        is_script |= bool(programs & _SHELL_WORDS)
        is_script |= bool(programs & _ROOT) and any(map(_SHELL_FLAG.fullmatch, argv[1:place]))
        is_part = not _VARIABLE.fullmatch(word)
        may_run = is_part and bool(
            programs & _RUN_WORDS or _SCRIPT_CHARACTERS.search(_VARIABLE.sub("", word))
        )
        value_of = partial(_value, facts=facts, is_code=is_script, may_run=may_run)
        found.append(_VARIABLE.sub(value_of, word))
    return found


def _value(match: re.Match[str], facts: Mapping[str, str], is_code: bool, may_run: bool) -> str:
    negated, name = (match[1], match[2]) if match[2] else (match[3], match[4])
    rest = ""
    # As in `$NAME-debug`: hyphens belong to a name only in those of columns.
    while match[2] and name not in facts and "-" in name:
        name, hyphen, end = name.rpartition("-")
        rest = f"{hyphen}{end}{rest}"
    script = match.string
    if is_code and re.search(rf"\b{re.escape(name)}=|\bfor {re.escape(name)}\b", script):
        return match[0]  # the script's own variable
    if name not in facts:
        if not is_code and (name in _KNOWN or name == "COL" or name.startswith("COL-")):
            raise Refused(f"The selected row has no ${match[2] or match[4]}.")
        return match[0]
    value = facts[name]
    if negated and value.lower() in ("true", "false"):
        value = "false" if value.lower() == "true" else "true"
    if (is_code or may_run) and not _HARMLESS.fullmatch(value):
        raise Refused(
            f"${name} is {sanitize(value)!r}, which a shell might run. Pass it as a word of its own after "
            "the script, and use it there as $1."
        )
    if "\0" in value:
        raise Refused(f"${name} contains a NUL character.")
    return value + rest


def _facts(console: BaseConsole, view: View, argv: Sequence[str]) -> dict[str, str]:
    snapshot, ref = console.snapshot, view.current_job()
    selected = "" if view.VIEW.name in ("jobs", "notices") else view.selected_object()
    folder, _, name = selected.rpartition("/")
    kubeconfig = _kubeconfig(console) or os.environ.get("KUBECONFIG") or str(expand_home("~/.kube/config"))
    config = console.session.client.config if console.session is not None else None
    facts = {
        "CONTEXT": snapshot.context,
        "USER": config.user if config is not None else snapshot.user,
        "KUBECONFIG": kubeconfig,
        "FILTER": view.filter_text,
        "NAMESPACE": (ref.namespace if ref else "")
        or snapshot.namespace
        or (config.namespace if config else ""),
        "RESOURCE_NAME": view.VIEW.name,
    }
    if any("CLUSTER" in word for word in argv):
        from k8s.client.auth.kubeconfig import read_kubeconfig

        facts["CLUSTER"] = read_kubeconfig(_kubeconfig(console)).resolve(snapshot.context).context.cluster
    if ref is not None:
        group, _, version = ref.api_version.rpartition("/")
        facts |= {"NAME": ref.name, "RESOURCE_GROUP": group, "RESOURCE_VERSION": version}
        facts["RESOURCE_NAME"] = f"{ref.kind.lower()}s"
    if ref is not None and (job := snapshot.job(ref)) is not None:
        with suppress(KubeError):  # it has no pods
            instance = find_instance(job, view.selected_instance())
            place = {"POD": instance.pod, "NODE": instance.node, "CONTAINER": find_container(instance)}
            facts |= {variable: value for variable, value in place.items() if value}
    if name:
        facts |= {
            "NAME": name,
            "RESOURCE_NAME": view.VIEW.name,
            "RESOURCE_GROUP": "",
            "RESOURCE_VERSION": "v1",
        }
        facts |= {"NAMESPACE": folder} if folder not in ("", "pod") else {}
        facts |= {"NODE": name} if view.VIEW.name == "nodes" else {}
    for table in list(view.query(Table))[:1]:
        row = next((row for row in table.shown_rows if row.key == table.cursor_key), None)
        for column, cell in zip(table.columns, row.cells if row is not None else (), strict=False):
            facts[f"COL-{column.title.upper().replace(' ', '-')}"] = cell.text.strip()
    return facts


def _kubeconfig(console: BaseConsole) -> str:
    # The sandbox's is among the options of the session only.
    return (console.options if console.session is None else console.session.options).kubeconfig


async def _run(console: BaseConsole, plugin: Plugin, argv: list[str]) -> None:
    # For kubectl and the like: the cluster of the console.
    path = _kubeconfig(console)
    env = {**os.environ, **({"KUBECONFIG": path} if path else {})}
    try:
        if plugin.shows_output or plugin.runs_in_background:
            console.notify(f"Running {plugin.title}…")
            status, output, errors = await _captured(argv, env)
        else:
            status, output, errors = await run_program(argv, env, lambda: handed_over(console)), "", ""
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        console.notify(f"{sanitize(argv[0])}: {why}.", title=f"{plugin.title} was not run.", severity="error")
        return
    if plugin.shows_output:
        ended = f"\n-- {exit_text(status)}" if status else ""
        outputs = console.plugin_outputs
        number = str(max(map(int, outputs), default=0) + 1)
        outputs[number] = f"{output}{ended}\n{errors}".strip("\n") or "(no output)"
        for old in list(outputs)[:-_MOST_OUTPUTS]:
            del outputs[old]
        _show_output(console, plugin, number)
        return
    words = _notice(errors or output) if status else _notice(output) if plugin.announces_output else ""
    ended = "is done" if not status else f"failed: {exit_text(status)}"
    # What a program in the foreground prints has been seen.
    is_news = status and plugin.runs_in_background
    severity: SeverityLevel = "error" if is_news else "warning" if status else "information"
    console.notify(words, title=f"{plugin.title} {ended}.", severity=severity)


def _notice(text: str) -> str:
    return sanitize_lines(text.strip())[:_MOST_NOTICE]


def _show_output(console: BaseConsole, plugin: Plugin, number: str) -> None:
    from tui.screens.documents.text import TextView

    async def read() -> str:
        again = "This output is no longer kept; run the plugin again."
        return "\n".join(map(log_text, console.plugin_outputs.get(number, again).split("\n")))

    console.views.show(Route(plugin.name, number), TextView(plugin.title, read, wraps=False))


async def _captured(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program without a terminal; return its exit status and the start of its output and errors."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # so that it cannot open the console's terminal
    )
    assert process.stdout is not None and process.stderr is not None
    kept = bytearray(), bytearray()
    reading = [
        asyncio.create_task(_read(*each)) for each in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    try:
        status = await process.wait()
        await asyncio.wait(reading, timeout=_LAST_OUTPUT_S)
    finally:
        for task in reading:
            task.cancel()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    output, errors = (_text_of(each) for each in kept)
    return status, output, errors


def _text_of(kept: bytearray) -> str:
    is_cut = len(kept) >= _MOST_BYTES
    cut = f"\n-- Only the first {_MOST_BYTES // 2**20} MiB are kept." if is_cut else ""
    return kept.decode("utf-8", "replace") + cut


async def _read(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while chunk := await stream.read(65536):
        kept += chunk[: _MOST_BYTES - len(kept)]
