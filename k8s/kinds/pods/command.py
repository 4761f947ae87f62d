"""Command of the training container: as given, started by torchrun, or replaced by a sleep."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec


# Debug mode. The command follows as unused arguments, to be copied from there. A shell that waits
# ends at once when the pod is deleted.
_ASLEEP = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
_TORCHRUN = ("python", "-m", "torch.distributed.run")
# The words that follow are a program, not a Python script.
ANY_PROGRAM = "--no-python"
_SCRIPT = ("python", "-u")
_SHELLS = ("sh", "bash", "ash", "dash", "zsh", "ksh")
_SHELL_SYNTAX = re.compile(r"[$`|&;<>()*?\[{~#\n]")
_SECOND_COMMAND = re.compile(r"[|&;\n]")


def command_of(spec: JobSpec) -> list[str]:
    """Return the argv of the training container; a packaged trainer starts its processes itself."""
    words = list(spec.command)
    if spec.torchrun and not spec.trainer and words:
        words = [*_TORCHRUN, *spec.torchrun_options, ANY_PROGRAM, *_program(torchrun_program(spec))]
    return [*_ASLEEP, *words] if spec.debug else words


def is_script(command: tuple[str, ...]) -> bool:
    """Return True if a command begins with a Python script or `-m`, which torchrun starts itself."""
    return bool(command) and (command[0].endswith(".py") or command[0] == "-m")


def shell_argv(line: str, shell: str = "sh") -> tuple[str, ...]:
    """Return the argv for a shell line; a line that is itself `sh -c "…"` becomes that argv."""
    # Wrapped in another shell, its variables would be expanded too early.
    words = _split_line(line)
    if len(words) == 3 and _is_shell(words) and not re.search(r"\\[$`]", line):
        return words
    return (shell, "-c", line)


def torchrun_program(spec: JobSpec) -> tuple[str, ...]:
    """Return the program for torchrun; a quoted line that begins with a Python script is split."""
    command = spec.command
    if len(command) == 3 and _is_shell(command):
        line = command[2]
    elif len(command) == 1 and " " in command[0].strip():
        line = command[0]
    else:
        return command
    words = _split_line(line)
    if not is_script(words):
        return command
    if not _SHELL_SYNTAX.search(line):
        return words
    # Only a shell expands the variables and globs in its arguments. `exec` would drop a second command.
    start = "" if _SECOND_COMMAND.search(line) else "exec "
    return (*(command[:2] if len(command) == 3 else ("sh", "-c")), f"{start}{' '.join(_SCRIPT)} {line}")


def _split_line(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:  # an open quote: the shell says so
        return ()


def _is_shell(words: tuple[str, ...]) -> bool:
    is_option = re.fullmatch(r"-[a-z]*c", words[1]) is not None
    return PurePosixPath(words[0]).name in _SHELLS and is_option


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    return (*_SCRIPT, *command) if is_script(command) else command


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    place = words.index(ANY_PROGRAM)
    options, program = words[:place], words[place + 1 :]
    script = program[len(_SCRIPT) :]
    return options, script if program[: len(_SCRIPT)] == _SCRIPT and is_script(script) else program
