"""`gpuconsole`: opens the console, or runs one command; nobody sees a traceback for what can go wrong.

Imports as little as it can, so that `--help` and mistakes are answered at once; and nothing that takes time
before `main`, which alone knows what to do at ctrl+c.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from tui.options import ConsoleOptions

DONE, FAILED, WRONG_USAGE = 0, 1, 2
"""What the program answers its caller."""
INTERRUPTED, PIPE_CLOSED = 130, 141
"""128 and the number of SIGINT, of SIGPIPE."""

GARBAGE = (10_000, 250, 20)
"""How cycles are looked for: among few new objects at a time, for a key waits as long as a look takes; and
rarely among all, for a large cluster's objects hold none."""
_TOGETHER = ("k8s", "trainer", "themes")
_TAKE_WORDS = ("submit", "shell")
"""The commands that take another program's words after `--`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        # Where it was not imported yet nothing has begun; and a broken import must not be tried again.
        if ctrl_c := sys.modules.get("tui.terminal.ctrl_c"):
            ctrl_c.leave()
        return INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    if problem := find_intruder():
        sys.stderr.write(problem)
        return FAILED
    import gc
    import io
    import os

    # Only now is it known that these are ours.
    from k8s.errors import KubeError
    from tui.commands.support.output import WrongUsage, write_stderr

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    gc.set_threshold(*GARBAGE)
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except KubeError as error:
        write_stderr(str(error))
        return FAILED
    except WrongUsage as error:
        write_stderr(f"{error}\nSee {' '.join(filter(None, ('gpuconsole', error.command)))} --help")
        return WRONG_USAGE
    except BrokenPipeError:
        # What is still buffered has no reader; the interpreter must not try once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        write_stderr(f"Could not do that on this machine.\n{error}.")
        return FAILED


def find_intruder() -> str:
    """Return what is wrong with the packages that must lie beside this one; nothing when all is well.

    Their names are common, so another program's may be found first.
    """
    import importlib.util
    from pathlib import Path

    home = Path(__file__).resolve().parent.parent
    for name in _TOGETHER:
        spec = importlib.util.find_spec(name)
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
    """Return a path that no terminal obeys: what makes words harmless is in one of those packages."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(path))


def _run(words: list[str]) -> int:
    from tui.commands.support.parser import ineffective_flags, make_parser, options_of

    parser = make_parser()
    own, dashes, rest = _cut(words)
    flags = parser.parse_args(own)
    if flags.version:
        from importlib.metadata import version

        sys.stdout.write(f"gpuconsole {version('gpuconsole')}\n")
        return DONE
    if dashes and (flags.chosen is None or flags.module not in _TAKE_WORDS):
        parser.error(f"only {' and '.join(_TAKE_WORDS)} take words after --")
    flags.rest = rest
    if ignored := ineffective_flags(flags):
        sys.stderr.write(f"Without effect here: {', '.join(ignored)}.\n")
    options = options_of(flags)
    if not options.config_file.exists():
        return _do(options, flags)
    # Slow to import, and most people set nothing.
    from dataclasses import replace

    from k8s.devices.accelerators import recognising
    from tui.commands.support.output import write_stderr
    from tui.files.config_file import read_config

    config = read_config(options.config_file)
    for key in config.unknown:
        write_stderr(f"{options.config_file}: unknown setting {key}")
    options = replace(
        options,
        config_theme=config.theme,
        finished_days=config.finished_days,
        prometheus=config.prometheus,
        strip_by=config.strip_by,
        has_loss=config.loss,
    )
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
    from tui.commands.support.output import WrongUsage
    from tui.terminal.ctrl_c import run_until_ctrl_c

    try:
        return run_until_ctrl_c(module.run(options, flags))
    except WrongUsage as error:
        error.command = flags.chosen
        raise


def _cut(words: list[str]) -> tuple[list[str], bool, list[str]]:
    """Split the words at the first `--`: what follows is another program's."""
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
