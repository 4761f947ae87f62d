"""`completion`: print a shell's completion script; refresh the names that it offers."""

from __future__ import annotations

import argparse
import fcntl
import json
import time
import zlib
from collections.abc import Iterator
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

_BASH = r"""# Load it with: source <(gpuconsole completion bash)
_gpuconsole() {
  local line choices=() last=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :*) last=$line ;;
      *) choices+=("${line%%$'\t'*}") ;;
    esac
  done < <(gpuconsole __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=("${choices[@]}")
  [ "$last" = :files ] && compopt -o default 2>/dev/null
}
complete -F _gpuconsole gpuconsole
"""
_ZSH = r"""#compdef gpuconsole
# Load it with: source <(gpuconsole completion zsh)
_gpuconsole() {
  local line last=
  local -a choices
  while IFS= read -r line; do
    case $line in
      :*) last=$line ;;
      *) choices+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done < <(gpuconsole __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( $#choices )) && _describe gpuconsole choices
  [[ $last == :files ]] && _files
  return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
compdef _gpuconsole gpuconsole
"""
_FISH = r"""# Load it with: gpuconsole completion fish | source
function __gpuconsole_complete
  set -l words (commandline -opc) (commandline -ct)
  for line in (gpuconsole __complete $words[2..-1] 2>/dev/null)
    switch $line
      case ':files'
        __fish_complete_path (commandline -ct)
      case ':*'
      case '*'
        echo $line
    end
  end
end
complete -c gpuconsole -f -a '(__gpuconsole_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

# Kinds of completions by the name of an argument, or else by its placeholder.
_SOURCES = {
    **dict.fromkeys(("job", "jobs", "names"), "jobs"),
    **dict.fromkeys(("source", "sources"), f"jobs {FILES}"),
    "instance": "instances",
    "rank": "ranks",
    "words": "nodes jobs",
    "node": "nodes",
    "context": "contexts",
    "namespace": "namespaces",
    "template": "templates",
    "theme": "themes",
    "topic": " ".join(("choices", *TOPICS)),
    "FORMAT": " ".join(("choices", *LIST_FORMATS)),
    "job_type": " ".join(("choices", *(kind.resource.kind.lower() for kind in KINDS))),
    **dict.fromkeys(("FILE", "FOLDER", "PATH", "DIR"), FILES),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="bash, zsh or fish")
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
        write(SCRIPTS[flags.shell].rstrip("\n"))
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
    """Return all commands with their flags and arguments, as `completer` reads them."""
    return _node(make_parser(), "")


def _node(parser: argparse.ArgumentParser, words: str) -> dict[str, Any]:
    """Return one command: its flags with whether they take a value, the source of that, and their help."""
    if isinstance(parser, CommandParser):
        parser.fill()
    flags: dict[str, tuple[bool, str, str]] = {}
    children: dict[str, Any] = {}
    arguments: list[str] = []
    repeats = False
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest.split(" ")[0]: each.help or "" for each in action._choices_actions}
            children = {
                name: _node(each, helps[name]) for name, each in action.choices.items() if name in helps
            }
        elif action.option_strings:
            has_value = action.nargs != 0 and not isinstance(action, SwitchAction)
            for name in action.option_strings:
                flags[name] = (has_value, _source(action), str(action.help or "").partition(",")[0])
        else:
            arguments.append(_source(action))
            repeats = action.nargs in ("+", "*", argparse.REMAINDER)
    return {"words": words, "flags": flags, "children": children, "arguments": arguments, "repeats": repeats}


def _source(action: argparse.Action) -> str:
    if action.choices is not None:
        return " ".join(("choices", *map(str, action.choices)))
    return _SOURCES.get(action.dest) or _SOURCES.get(str(action.metavar), "")
