"""`gpuconsole`: open the console or run one command; expected errors never end in a traceback.

Imports as little as possible, so that `--help` and mistakes are answered at once, and nothing slow
before `main`, which handles ctrl+c.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from tui.settings.options import ConsoleOptions

DONE, FAILED, WRONG_USAGE = 0, 1, 2
INTERRUPTED, PIPE_CLOSED = 130, 141

# gc thresholds. Collections of young objects stay small because a key waits for them; full ones are
# rare because a large cluster's objects hold no cycles.
GARBAGE = (10_000, 250, 20)
_TOGETHER = ("k8s", "trainer", "themes")
# Commands that pass the words after `--` to another program.
_TAKE_WORDS = ("submit", "shell")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "_ARGCOMPLETE" in os.environ:  # at each tab: nothing that is not needed for it
            from tui.commands.completer import complete, read_grammar

            grammar = read_grammar()
            if not grammar:
                from tui.commands.completion import store_grammar

                grammar = store_grammar()
            complete(grammar)
        if words == ["--version"]:
            return _print_version()
        return _main(words)
    except (OSError, BaseExceptionGroup) as error:
        if not _is_closed_pipe(error):
            raise
        _discard_unwritten()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        # Where it was not imported yet nothing has begun; and a broken import must not be tried again.
        if ctrl_c := sys.modules.get("tui.terminal.ctrl_c"):
            ctrl_c.leave()
        return INTERRUPTED


def _print_version() -> int:
    from tui import VERSION

    sys.stdout.write(f"gpuconsole {VERSION}\n")
    sys.stdout.flush()
    return DONE


def _open_closed_streams() -> None:
    """Open the null device for standard streams that were closed at the start (`>&-`), which are None."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))  # noqa: SIM115


def _is_closed_pipe(error: BaseException) -> bool:
    """Return True if the reader of stdout or stderr went away, also inside an exception group."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def _discard_unwritten() -> None:
    # Or the interpreter tries to flush again at exit.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _main(words: list[str]) -> int:
    if problem := find_intruder():
        sys.stderr.write(problem)
        return FAILED
    import gc

    gc.set_threshold(*GARBAGE)
    import codecs
    import errno
    import io

    # Only now is it known that these are ours.
    from k8s.text.errors import KubeError
    from tui.commands.support.output import WrongUsage, nearest_ascii, write_stderr
    from tui.terminal.tty_state import wants_ascii

    encoding = "ascii" if wants_ascii() else None
    codecs.register_error("nearest", nearest_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="nearest")
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except KubeError as error:
        write_stderr(str(error))
        return FAILED
    except WrongUsage as error:
        from tui import program

        write_stderr(f"{error}\nSee {' '.join(filter(None, (program(), error.command)))} --help")
        return WRONG_USAGE
    except SystemExit:
        sys.stdout.flush()  # argparse has written help
        raise
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        _discard_unwritten()
        # A write to stdout names no file.
        is_full = not error.filename and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        place = "standard output" if is_full else error.filename
        what = f"Could not use {place}." if place else "Could not finish on this machine."
        write_stderr(f"{what}\n{error.strerror or error}.")
        return FAILED


def find_intruder() -> str:
    """Return the problem with the packages beside this one; empty if there is none.

    Their names are common, so another program's package may shadow them.
    """
    from pathlib import Path

    home = Path(__file__).resolve().parent.parent
    for name in _TOGETHER:
        # As `importlib.util.find_spec`, whose import takes 10 ms.
        found = (finder.find_spec(name, None) for finder in sys.meta_path)
        spec = getattr(sys.modules.get(name), "__spec__", None) or next(filter(None, found), None)
        places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
        if not places:
            return f"gpuconsole is not whole.\nThere is no {name} in {_shown(home)}.\nInstall it again.\n"
        if Path(places[0]).resolve() != home / name:
            return (
                f"Another package called {name} is in the way.\n"
                f"{_shown(places[0])} is found instead of {_shown(home / name)}.\n"
                "Start gpuconsole from another folder, or rename that one.\n"
            )
    return ""


def _shown(path: Path | str) -> str:
    # Not k8s.text.sanitize: this reports that `k8s` may be another program's package.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(path))


def _run(words: list[str]) -> int:
    from k8s.text.home import require_own_folder
    from tui.commands.support.parser import ineffective_flags, make_parser, options_of

    own, dashes, rest = _cut(words)
    parser = make_parser(own)
    flags = parser.parse_args(own)
    if flags.version:
        return _print_version()
    if dashes and (flags.chosen is None or flags.module not in _TAKE_WORDS):
        parser.error(f"only {' and '.join(_TAKE_WORDS)} take words after --")
    flags.rest = rest
    if ignored := ineffective_flags(flags):
        sys.stderr.write(f"Without effect here: {', '.join(ignored)}.\n")
    options = options_of(flags)
    require_own_folder(options.config_folder, "XDG_CONFIG_HOME")
    require_own_folder(options.state_folder, "XDG_STATE_HOME")
    require_own_folder(options.data_folder, "XDG_DATA_HOME")
    if flags.chosen is not None and "theme" in flags:  # without effect, but not without a check
        from themes import load
        from tui.commands.console import check_theme

        check_theme(options.theme, load(options.themes_folder))
    from tui.settings.console_log import start_log

    start_log(options.log_file, options.verbosity, is_on_stderr=flags.chosen is not None)
    if not options.config_file.exists():
        return _do(options, flags)
    # Slow to import, and most people set nothing.
    from msgspec.structs import replace

    from k8s.models.accelerators import recognising
    from tui.commands.support.output import write_stderr
    from tui.settings.config_file import read_config
    from tui.tables import column_keys

    config = read_config(options.config_file, column_keys)
    # The console shows the problems on its own.
    unknown = [f"{options.config_file}: unknown setting {key}" for key in config.unknown]
    for problem in (*(config.problems if flags.chosen is not None else ()), *unknown):
        write_stderr(problem)
    options = replace(
        options,
        config_theme=config.theme,
        finished_days=config.finished_days,
        prometheus=config.prometheus,
        log_store=config.log_store,
        strip_by=config.strip_by,
        has_loss=config.loss,
        alerts=config.alerts,
        notify=config.notify,
        history=config.history,
        aliases=config.aliases,
        columns=config.columns,
        contexts=config.contexts,
        config_problems=config.problems,
    )
    if config.contexts:
        from tui.commands.support.connect import in_chosen_context

        options = in_chosen_context(options)
    if config.columns:
        from k8s.models.base import keep_annotations
        from tui.tables.column import annotations_in

        keep_annotations(annotations_in(config.columns))
    with recognising(config.accelerators):
        return _do(options, flags)


def _do(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    import gc
    import importlib

    if flags.chosen is None:
        gc.disable()
        try:
            from tui.commands.console import prepare, resolve_options

            options = prepare(options)
            from tui.app import run_console
        finally:
            gc.enable()
        gc.freeze()  # what was made so far, code and its like, stays to the end: no look need pass it
        return run_console(options, resolve_options)
    module = importlib.import_module(f"tui.commands.{flags.module}")
    from k8s.text.errors import KubeError
    from tui.commands.support.output import WrongUsage
    from tui.terminal.ctrl_c import run_until_ctrl_c

    try:
        return run_until_ctrl_c(module.run(options, flags))
    except KubeError as error:
        from tui.commands.support.connect import with_cluster_flags

        error.hint = with_cluster_flags(options, error.hint)
        raise
    except WrongUsage as error:
        error.command = flags.chosen
        raise
    finally:
        gc.freeze()  # at the end Python would look through all code for garbage, for 40 ms


def _cut(words: list[str]) -> tuple[list[str], bool, list[str]]:
    """Split the words at the first `--`; those after it are another program's."""
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
