"""Kubeconfigs as kubectl merges them: which contexts there are, and what each one says.

Nothing here runs an exec plugin or asks a cluster. YAML, slow to import, waits until a file is
read: before the first frame only `kubeconfig_files` is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8s.errors import NoCluster
from k8s.text.home import expand_home
from k8s.text.sanitize import sanitize

SANDBOX_HINT = "Point KUBECONFIG at one, or try the single-machine cluster: gpuconsole --sandbox"
UNUSABLE = "This kubeconfig cannot be used."

_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
"""Sections of a kubeconfig, and what in their entries is a path that begins at the file's folder."""
_QUOTED = re.compile(r"'[^']{4,}'|\"[^\"]{4,}\"")
_NO_YAML = "this is not YAML"
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Context:
    """One entry of the list that a user chooses from. Its words are as they stand in the file."""

    name: str
    cluster: str = ""
    server: str = ""
    """The cluster's address; empty when its entry is missing."""
    user: str = ""
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class ResolvedContext:
    """One context with the entries it names."""

    context: Context
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Several files as one. The first to name a thing counts, as in kubectl."""

    files: tuple[Path, ...] = ()
    current: str = ""
    """The current context's name; empty when no file says."""
    contexts: tuple[Context, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with files that were left out, a sentence each."""
    _clusters: Mapping[str, Mapping[str, Any]] | None = None
    _users: Mapping[str, Mapping[str, Any]] | None = None

    def resolve(self, name: str = "") -> ResolvedContext:
        """Return a context, by default the current one, with the entries of its cluster and its user.

        Raises:
            NoCluster: It is not there, or incomplete. Without a name also when a file was
                left out: it may say which context is the current one.
        """
        files = ", ".join(str(path) for path in self.files)
        if self.problems and not name:
            raise NoCluster(UNUSABLE, "\n".join(self.problems), SANDBOX_HINT)
        context_name = name or self.current
        context = next((each for each in self.contexts if each.name == context_name), None)
        if context is None:
            names = ", ".join(each.name for each in self.contexts[:_MOST_NAMED]) or "none"
            what = f"There is no context {context_name}." if context_name else "There is no current context."
            raise NoCluster(sanitize(what), sanitize(f"There are: {names}. ({files})"), SANDBOX_HINT)
        cluster = (self._clusters or {}).get(context.cluster)
        user = (self._users or {}).get(context.user)
        for what, entry, called in (("cluster", cluster, context.cluster), ("user", user, context.user)):
            if entry is None and (called or what == "cluster"):
                why = (
                    f"{files}: context {context_name} names {what} {called or 'nothing'}, which is not there."
                )
                raise NoCluster(UNUSABLE, sanitize(why), SANDBOX_HINT)
        if not context.server:
            raise NoCluster(UNUSABLE, sanitize(f"{files}: {context.cluster} names no server."), SANDBOX_HINT)
        return ResolvedContext(context, cluster or {}, user or {})


def kubeconfig_files() -> list[Path]:
    """Return the kubeconfig files that kubectl would merge, those that exist."""
    text = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for part in text.split(os.pathsep) if part and (path := expand_home(part)).is_file()]


def read_kubeconfig(kubeconfig: str = "") -> Kubeconfig:
    """Read and merge this kubeconfig, or those that kubectl would take, leaving out what makes no sense.

    Raises:
        NoCluster: The one that was named is not there.
    """
    if not kubeconfig:
        return merge(kubeconfig_files())
    path = expand_home(kubeconfig)
    if not path.is_file():
        why = sanitize(f"There is no kubeconfig at {kubeconfig}.")
        raise NoCluster("No cluster to talk to.", why, SANDBOX_HINT)
    return merge([path])


def merge(files: Sequence[Path]) -> Kubeconfig:
    """Merge kubeconfigs, the first one first."""
    current = ""
    sections: dict[str, dict[str, Mapping[str, Any]]] = {section: {} for section in _PATHS}
    problems: list[str] = []
    for path in files:
        try:
            found = _parse(path)
            entries = {section: list(_entries(found, section, path)) for section in sections}
        except (OSError, ValueError, RecursionError) as error:
            problems.append(sanitize(f"{path}: {_words(error)}"))
            continue
        current = current or str(found.get("current-context") or "")
        for section, named in entries.items():
            for name, entry in named:
                sections[section].setdefault(name, entry)
    contexts = [_context(name, entry, sections["clusters"]) for name, entry in sections["contexts"].items()]
    return Kubeconfig(
        tuple(files), current, tuple(contexts), tuple(problems), sections["clusters"], sections["users"]
    )


def _parse(path: Path) -> Mapping[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), loader)
    except yaml.MarkedYAMLError as error:
        if error.problem_mark is None:
            raise ValueError(_NO_YAML) from None
        problem = _QUOTED.sub("…", error.problem or "no YAML")
        raise ValueError(f"line {error.problem_mark.line + 1}: {problem}") from None
    except yaml.YAMLError:
        raise ValueError(_NO_YAML) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("this is not a kubeconfig")
    return found


def _entries(found: Mapping[str, Any], section: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries of a section that have a name, without what is empty and with whole paths."""
    listed = found.get(section) or []
    if not isinstance(listed, list):
        raise ValueError(f"this is not a kubeconfig, its {section} are no list")
    for item in listed:
        entry = item.get(section.removesuffix("s")) if isinstance(item, dict) else None
        if not isinstance(entry, dict) or item.get("name") in (None, ""):
            continue
        kept = {key: value for key, value in entry.items() if value not in (None, "")}
        for key in _PATHS[section]:
            if key in kept:
                kept[key] = _absolute(str(kept[key]), path)
        plugin = kept.get("exec")
        if section == "users" and isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
            kept["exec"] = {**plugin, "command": _absolute(str(plugin["command"]), path)}
        yield str(item["name"]), kept


def _absolute(named: str, path: Path) -> str:
    return os.path.normpath(path.absolute().parent / named)


def _context(name: str, entry: Mapping[str, Any], clusters: Mapping[str, Mapping[str, Any]]) -> Context:
    cluster = str(entry.get("cluster", ""))
    server = str((clusters.get(cluster) or {}).get("server", ""))
    namespace = str(entry.get("namespace", "default"))
    return Context(name, cluster, server, str(entry.get("user", "")), namespace)


def _words(error: Exception) -> str:
    """Return what is wrong with a file, without quoting it: tokens may be in it."""
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return f"{_NO_YAML}."
    return f"{error}."
