"""Answers of `__complete`, which the shells' completion scripts call at each tab.

Imports nothing slow, because a tab must answer within 100 ms: the grammar of the command line and the
names in the cluster come from caches in the state folder. Stale names are refreshed in the background.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False  # the module `typing` takes longer than the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

GRAMMAR_FILE, NAMES_FILE = "grammar.json", "names.json"
# A cache of this age is refreshed; names of this age are no longer offered.
FRESH_S, OLD_S = 10.0, 7 * 86_400.0
# The first time there is nothing to offer, so wait for the names.
FIRST_S = 2.0
MOST_CLUSTERS, MOST_CHOICES = 16, 2_000
FILES = "files"
# Stands for a namespace in keys of the cache.
ALL_NAMESPACES = "*"
# Kinds of names that differ between the namespaces of a cluster.
_OF_NAMESPACE = frozenset({"jobs", "instances", "ranks"})
# Flags that select the cluster whose names are offered, with the key of their value.
_CLUSTER_FLAGS = {
    "--kubeconfig": "kubeconfig",
    "--context": "context",
    "-n": "namespace",
    "--namespace": "namespace",
}


def complete(words: Sequence[str], grammar: Mapping[str, Any]) -> int:
    """Print the completions of the last word, one per line with a tab before its description.

    The last line is `:files` where a path may follow, `:` elsewhere.
    """
    before, word, prefix = _split(list(words))
    node, source, given = grammar, "", dict[str, str]()
    job, flag, takes_value, place = "", "", False, 0
    for each in before:
        if takes_value:
            given[flag] = each
            takes_value = False
        elif each.startswith("-") and each != "-":
            flag, equals, value = each.partition("=")
            takes_value = bool(node["flags"].get(flag, ("",))[0]) and not equals
            given[flag] = value
        elif each in node["children"]:
            node, place = node["children"][each], 0
        else:
            job, place = job or each, place + 1
    if takes_value:
        source = node["flags"][flag][1]
        _print(_choices(source, given, job), word, prefix, source)
    elif word.startswith("-"):
        flags = {name: words for name, (_, _, words) in node["flags"].items()}
        _print(flags, word, "", "")
    elif node["children"] and place == 0:
        _print({name: each["words"] for name, each in node["children"].items()}, word, "", "")
    else:
        sources = node["arguments"]
        source = sources[min(place, len(sources) - 1)] if sources else FILES
        is_over = sources and place >= len(sources) and not node["repeats"]
        _print({} if is_over else _choices(source, given, job), word, prefix, "" if is_over else source)
    return 0


def _split(words: list[str]) -> tuple[list[str], str, str]:
    """Return the words before the cursor, the word at it, and the part of that that stays as it is.

    bash splits `--for=run` into three words; zsh and fish pass it as one.
    """
    merged: list[str] = []
    for each in words:
        if each == "=" and merged and merged[-1].startswith("--"):
            continue
        merged.append(each)
    word = merged.pop() if merged and words[-1] != "=" else ""
    if word.startswith("--") and "=" in word:
        flag, _, word = word.partition("=")
        return [*merged, flag], word, f"{flag}="
    return merged, word, ""


def _print(choices: Mapping[str, str], word: str, prefix: str, source: str) -> None:
    found = [(name, words) for name, words in choices.items() if name.startswith(word)]
    for name, words in found[:MOST_CHOICES]:
        if name.isprintable():
            sys.stdout.write(f"{prefix}{name}\t{words if words.isprintable() else ''}\n")
    sys.stdout.write(":files\n" if FILES in source.split() else ":\n")


def _choices(source: str, given: Mapping[str, str], job: str) -> dict[str, str]:
    """Return the choices of an argument with their descriptions; `source` names their kinds."""
    kinds = source.split()
    if kinds[:1] == ["choices"]:
        return dict.fromkeys(kinds[1:], "")
    names = _names(given, set(kinds)) if kinds and kinds != [FILES] else {}
    jobs: dict[str, Any] = names.get("jobs", {})
    found: dict[str, str] = {}
    for kind in kinds:
        if kind == "jobs":
            found |= {name: str(each.get("words", "")) for name, each in jobs.items()}
        elif kind in ("instances", "ranks"):
            of_job = jobs.get(job.rpartition("/")[2], {}).get(kind)
            found |= dict.fromkeys(map(str, of_job or ()), "")
        else:
            found |= dict.fromkeys(map(str, names.get(kind) or ()), "")
    return found


def state_folder() -> str:
    """Return the state folder, as `platformdirs` does, which is slow to import."""
    base = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return os.path.join(base, "gpuconsole")


def cluster_key(kubeconfig: str, context: str, namespace: str, *, is_sandbox: bool) -> str:
    """Return the key under which the names of one cluster and namespace are cached."""
    files = "" if is_sandbox else kubeconfig or os.environ.get("KUBECONFIG", "")
    return json.dumps([files, "" if is_sandbox else context, is_sandbox, namespace])


def _names(given: Mapping[str, str], kinds: set[str]) -> dict[str, Any]:
    selected = {_CLUSTER_FLAGS[flag]: value for flag, value in given.items() if flag in _CLUSTER_FLAGS}

    def chosen(name: str) -> str:
        return selected.get(name) or os.environ.get(f"GPUCONSOLE_{name.upper()}", "").strip()

    is_sandbox = "--sandbox" in given or chosen("sandbox").lower() in ("1", "true", "yes")
    is_all = "-A" in given or "--all-namespaces" in given
    namespace = ALL_NAMESPACES if is_all else chosen("namespace")
    key = cluster_key(chosen("kubeconfig"), chosen("context"), namespace, is_sandbox=is_sandbox)
    flags = [word for flag, value in given.items() if flag in _CLUSTER_FLAGS for word in (flag, value)]
    flags += [flag for flag in ("--sandbox", "-A", "--all-namespaces") if flag in given]
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
            env={**os.environ, "PYTHONPATH": path},
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
