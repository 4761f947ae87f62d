"""Answers to a tab in the shell, by argcomplete.

Imports nothing slow, because a tab must answer at once: the command line's arguments and the names in
the cluster come from caches in the state folder. Stale names are refreshed in the background.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False  # the module `typing` takes longer than the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

GRAMMAR_FILE, NAMES_FILE = "arguments.json", "names.json"
# A cache of this age is refreshed; names of this age are no longer offered.
FRESH_S, OLD_S = 10.0, 7 * 86_400.0
# The first time there is nothing to offer, so wait for the names.
FIRST_S = 2.0
MOST_CLUSTERS = 16
FILES = "files"
# Stands for a namespace in keys of the cache.
ALL_NAMESPACES = "*"
# Kinds of names that differ between the namespaces of a cluster.
_OF_NAMESPACE = frozenset({"jobs", "instances", "ranks"})
# Flags that select the cluster whose names are offered, by the name of their value.
_CLUSTER_FLAGS = {"kubeconfig": "--kubeconfig", "context": "--context", "namespace": "--namespace"}
_CLUSTER_SWITCHES = {"sandbox": "--sandbox", "all_namespaces": "--all-namespaces"}


def complete(grammar: Mapping[str, Any], **options: Any) -> None:
    """Write the completions of the word at the cursor where the shell's script expects them, and exit.

    Args:
        grammar: Of `completion.make_grammar`.
        options: Of `argcomplete.autocomplete`, for tests.
    """
    import argcomplete

    parser = make_parser(grammar)
    argcomplete.autocomplete(parser, always_complete_options=False, **options)


def make_parser(grammar: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Return a parser with all commands, without importing them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    _fill(parser, grammar)
    return parser


def _fill(parser: argparse.ArgumentParser, node: Mapping[str, Any]) -> None:
    for names, settings, choices, kinds in node["arguments"]:
        action = parser.add_argument(*names, **settings)
        action.completer = NameCompleter(choices, kinds)  # type: ignore[attr-defined]
    if node["commands"]:
        commands = parser.add_subparsers()
        for name, child in node["commands"].items():
            options: dict[str, Any] = {"add_help": False, "argument_default": argparse.SUPPRESS}
            _fill(commands.add_parser(name, help=child["help"], aliases=child["aliases"], **options), child)


class NameCompleter:
    """The completions of one argument: its choices, and names of some kinds in the selected cluster."""

    def __init__(self, choices: Iterable[str], kinds: Iterable[str]) -> None:
        self._choices, self._kinds = choices, kinds

    def __call__(self, prefix: str, parsed_args: argparse.Namespace, **_: object) -> dict[str, str]:
        """Return the completions with their descriptions."""
        found = dict.fromkeys(self._choices, "")
        wanted = {*self._kinds} - {FILES}
        names = _names(parsed_args, wanted) if wanted else {}
        jobs: dict[str, Any] = names.get("jobs", {})
        for kind in self._kinds:
            if kind == FILES:
                from argcomplete.completers import FilesCompleter

                found |= dict.fromkeys(FilesCompleter()(prefix), "")
            elif kind == "jobs":
                found |= {name: str(each.get("words", "")) for name, each in jobs.items()}
            elif kind in ("instances", "ranks"):
                of_job = jobs.get(_job(parsed_args), {}).get(kind)
                found |= dict.fromkeys(map(str, of_job or ()), "")
            else:
                found |= dict.fromkeys(map(str, names.get(kind) or ()), "")
        return {
            name: words if words.isprintable() else "" for name, words in found.items() if name.isprintable()
        }


def _job(parsed_args: argparse.Namespace) -> str:
    return str(getattr(parsed_args, "job", None) or "").rpartition("/")[2]


def state_folder() -> str:
    """Return the state folder, as `platformdirs` does, which is slow to import."""
    base = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return os.path.join(base, "gpuconsole")


def cluster_key(kubeconfig: str, context: str, namespace: str, *, is_sandbox: bool) -> str:
    """Return the key under which the names of one cluster and namespace are cached."""
    files = "" if is_sandbox else kubeconfig or os.environ.get("KUBECONFIG", "")
    return json.dumps([files, "" if is_sandbox else context, is_sandbox, namespace])


def _names(given: argparse.Namespace, kinds: set[str]) -> dict[str, Any]:
    def chosen(name: str) -> str:
        return getattr(given, name, None) or os.environ.get(f"GPUCONSOLE_{name.upper()}", "").strip()

    is_sandbox = hasattr(given, "sandbox") or chosen("sandbox").lower() in ("1", "true", "yes")
    namespace = ALL_NAMESPACES if hasattr(given, "all_namespaces") else chosen("namespace")
    key = cluster_key(chosen("kubeconfig"), chosen("context"), namespace, is_sandbox=is_sandbox)
    flags = [
        f"{flag}={getattr(given, name)}" for name, flag in _CLUSTER_FLAGS.items() if hasattr(given, name)
    ]
    flags += [flag for name, flag in _CLUSTER_SWITCHES.items() if hasattr(given, name)]
    found = read_names(key)
    age_s = time.time() - found.get("at", 0.0)
    if 0 <= age_s < FRESH_S:
        return found
    refreshing = _refresh(flags)
    if 0 <= age_s < OLD_S:
        return found
    found = _of_same_cluster(key)
    if refreshing is None or (found and kinds.isdisjoint(_OF_NAMESPACE)):
        return found
    try:
        refreshing.wait(FIRST_S)
    except subprocess.TimeoutExpired:
        return found
    return read_names(key)


def _of_same_cluster(key: str) -> dict[str, Any]:
    """Return the cached names that all namespaces of the cluster share; empty if there are none."""
    cluster, _, _ = key.rpartition(",")
    for each, names in reversed(read_cache(NAMES_FILE).items()):
        if each.rpartition(",")[0] == cluster and isinstance(names, dict):
            return {name: value for name, value in names.items() if name != "jobs"}
    return {}


def read_names(key: str) -> dict[str, Any]:
    """Return the cached names of a cluster; empty if there are none."""
    found = read_cache(NAMES_FILE).get(key)
    return found if isinstance(found, dict) else {}


def read_cache(name: str) -> dict[str, Any]:
    """Return a cache file; a missing or broken one counts as empty."""
    try:
        with open(os.path.join(state_folder(), name), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refresh(flags: Iterable[str]) -> subprocess.Popen[bytes] | None:
    # In a session of its own: closing the terminal must not end it, nor may it prompt there.
    words = [sys.executable, "-P", "-m", "tui", *flags, "completion", "--refresh"]
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    try:
        return subprocess.Popen(
            words,
            env={name: value for name, value in os.environ.items() if name != "_ARGCOMPLETE"}
            | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def read_grammar() -> dict[str, Any]:
    """Return the cached grammar; empty if another program, or an older version of this one, wrote it."""
    found = read_cache(GRAMMAR_FILE)
    return found if found.get("key") == grammar_key() else {}


def grammar_key() -> str:
    """Return the mark of this program in the cache of its grammar."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return f"{folder} {max(os.stat(each).st_mtime for each in (folder, os.path.join(folder, 'support')))}"
