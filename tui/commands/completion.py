"""`completion`: print a shell's completion script; refresh the names that it offers."""

from __future__ import annotations

import argparse
import fcntl
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import themes
from k8s.kinds import KINDS
from k8s.text.errors import KubeError
from tui.commands.completer import (
    ALL_NAMESPACES,
    FILES,
    GRAMMAR_FILE,
    MOST_CLUSTERS,
    NAMES_FILE,
    cluster_key,
    grammar_key,
    read_cache,
    read_names,
    state_folder,
)
from tui.commands.support.listing import LIST_FORMATS
from tui.commands.support.output import WrongUsage, write
from tui.commands.support.parser import CommandParser, SwitchAction, make_parser
from tui.settings.manual import TOPICS
from tui.settings.options import ConsoleOptions
from tui.settings.private_file import make_private_folder, write_private_file

# Kinds of completions by the name of an argument, or else by its placeholder.
_KINDS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("job", "jobs", "names"), ("jobs",)),
    **dict.fromkeys(("source", "sources"), ("jobs", FILES)),
    "instance": ("instances",),
    "rank": ("ranks",),
    "words": ("nodes", "jobs"),
    "node": ("nodes",),
    "context": ("contexts",),
    "namespace": ("namespaces",),
    "template": ("templates",),
    "theme": ("themes",),
    **dict.fromkeys(("FILE", "FOLDER", "PATH", "DIR"), (FILES,)),
}
# Choices that the parser does not check, likewise.
_CHOICES = {
    "topic": TOPICS,
    "FORMAT": LIST_FORMATS,
    "job_type": [kind.resource.kind.lower() for kind in KINDS],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    parser.add_argument("--refresh", action="store_true", help=argparse.SUPPRESS)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the script, or read the names of the cluster."""
    if flags.refresh:
        namespace = ALL_NAMESPACES if options.is_all_namespaces else options.namespace
        key = cluster_key(options.kubeconfig, options.context, namespace, is_sandbox=options.is_sandbox)
        with suppress(OSError), _only_one(key) as is_first:
            if is_first:
                await _refresh_names(options, key)
    elif flags.shell is None:
        raise WrongUsage("Which shell: bash, zsh or fish?")
    else:
        from argcomplete.shell_integration import shellcode

        write(shellcode(["gpuconsole"], use_defaults=False, shell=flags.shell))
    return 0


@contextmanager
def _only_one(key: str) -> Iterator[bool]:
    """Yield False if another process refreshes the names of this cluster, which may be away."""
    folder = Path(state_folder())
    make_private_folder(folder)
    with open(folder / f"{NAMES_FILE}.lock", "w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(key.encode()))
        except OSError:
            yield False
        else:
            yield True


async def _refresh_names(options: ConsoleOptions, key: str) -> None:
    from k8s.client.auth.kubeconfig import read_kubeconfig
    from k8s.models.resources import NAMESPACES, NODES
    from tui.commands.support.connect import cluster, read_jobs
    from tui.draft.job_templates import every_template

    # What cannot be read now keeps its names.
    found: dict[str, Any] = {**read_names(key), "at": time.time()}
    with suppress(KubeError):
        found["contexts"] = [each.name for each in read_kubeconfig(options.kubeconfig).contexts]
    found["themes"] = [themes.short(name) for name in themes.load(options.themes_folder)]
    found["templates"] = [each.name for each in every_template(options.templates_folder)[0]]
    with suppress(KubeError):
        async with cluster(options) as client:
            for name, resource in (("nodes", NODES), ("namespaces", NAMESPACES)):
                with suppress(KubeError):
                    found[name] = await client.list_names(resource)
            found["jobs"] = {
                job.ref.name: {
                    "words": f"{job.ref.kind} {job.status}",
                    "instances": [each.name for each in job.instances],
                    "ranks": sorted({rank for each in job.instances for rank in each.ranks}),
                }
                for job in (await read_jobs(options, client, is_narrow=True, has_nodes=False)).jobs
            }
    others = {each: names for each, names in read_cache(NAMES_FILE).items() if each != key}
    write_cache(NAMES_FILE, {**dict(list(others.items())[1 - MOST_CLUSTERS :]), key: found})


def write_cache(name: str, values: dict[str, Any]) -> None:
    """Write a cache file; without a state folder there is none."""
    with suppress(OSError):
        write_private_file(Path(state_folder()) / name, json.dumps(values))


def store_grammar() -> dict[str, Any]:
    """Cache the grammar for `completer` and return it."""
    found = {"key": grammar_key(), **make_grammar()}
    write_cache(GRAMMAR_FILE, found)
    return found


def make_grammar() -> dict[str, Any]:
    """Return all commands with their arguments, as `completer.make_parser` reads them."""
    return _node(make_parser())


def _node(parser: argparse.ArgumentParser) -> dict[str, Any]:
    if isinstance(parser, CommandParser):
        parser.fill()
    commands: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names: dict[int, list[str]] = {}
            for name, child in action.choices.items():
                names.setdefault(id(child), []).append(name)
            for each in action._choices_actions:
                child = action.choices[each.dest.split(" ")[0]]
                name, *aliases = names[id(child)]
                commands[name] = {"help": each.help or "", "aliases": aliases, **_node(child)}
    arguments = [
        _argument(each) for each in parser._actions if not isinstance(each, argparse._SubParsersAction)
    ]
    return {"arguments": arguments, "commands": commands}


def _argument(action: argparse.Action) -> tuple[Sequence[str], dict[str, Any], Sequence[str], Sequence[str]]:
    """Return the names and settings of an argument for `add_argument`, its choices and kinds of names."""
    has_value = action.nargs != 0 and not isinstance(action, SwitchAction)
    is_hidden = action.help == argparse.SUPPRESS
    settings: dict[str, Any] = {
        "help": action.help if is_hidden else str(action.help or "").partition(",")[0].replace("%", "%%"),
        **({"nargs": action.nargs} if has_value else {"action": "store_true"}),
        **({"dest": action.dest} if action.option_strings else {}),
    }
    by_name = (action.dest, str(action.metavar))
    choices = (
        action.choices or getattr(action, "fields", ()) or next(filter(None, map(_CHOICES.get, by_name)), ())
    )
    kinds = next(filter(None, map(_KINDS.get, by_name)), ())
    return action.option_strings or [action.dest], settings, [*map(str, choices)], kinds
