"""What the training container runs: the command, under torchrun, or asleep in its place."""

from __future__ import annotations

from typing import Any

from k8s.job_spec import JobSpec

_ASLEEP = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
"""What a pod in debug mode runs. The command follows as arguments that are not read, to be copied from
there; a shell that waits ends at once when the pod is deleted."""
_TORCHRUN = ("python", "-m", "torch.distributed.run")
ANY_PROGRAM = "--no-python"
"""torchrun's option that the words after it are a program, not a script of Python's."""
_SCRIPT = ("python", "-u")
"""How torchrun starts a script."""


def command_of(spec: JobSpec) -> list[str]:
    """Return the argv of the training container; a packaged trainer starts its processes by itself."""
    words = list(spec.command)
    if spec.torchrun and not spec.trainer and words:
        words = [*_TORCHRUN, *spec.torchrun_options, ANY_PROGRAM, *_program(spec.command)]
    return [*_ASLEEP, *words] if spec.debug else words


def is_script(command: tuple[str, ...]) -> bool:
    """Tell whether a command begins with a script of Python's or `-m`, which torchrun starts itself."""
    return bool(command) and (command[0].endswith(".py") or command[0] == "-m")


def fields_of_command(words: list[str]) -> dict[str, Any]:
    """Return what an argv says as fields of a spec."""
    command = tuple(words)
    found: dict[str, Any] = {"debug": command[: len(_ASLEEP)] == _ASLEEP}
    if found["debug"]:
        command = command[len(_ASLEEP) :]
    found |= {"torchrun": False, "torchrun_options": (), "command": command}
    if command[: len(_TORCHRUN)] == _TORCHRUN and ANY_PROGRAM in command:
        options, program = _split(command[len(_TORCHRUN) :])
        found |= {"torchrun": True, "torchrun_options": options, "command": program}
    return found


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    return (*_SCRIPT, *command) if is_script(command) else command


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return torchrun's options, and what it starts."""
    place = words.index(ANY_PROGRAM)
    options, program = words[:place], words[place + 1 :]
    script = program[len(_SCRIPT) :]
    return options, script if program[: len(_SCRIPT)] == _SCRIPT and is_script(script) else program
