"""Kubeconfigs, merged as kubectl merges them.

Runs no exec plugin and sends no request. YAML is slow to import and is imported when a file is
read; before the first frame only `kubeconfig_files` is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from k8s.text.errors import NoCluster
from k8s.text.home import expand_home, read_named_file
from k8s.text.sanitize import sanitize

SANDBOX_HINT = "Point KUBECONFIG at one, or try the single-machine cluster: gpuconsole --sandbox"
UNUSABLE = "This kubeconfig cannot be used."

# Sections of a kubeconfig, and the fields that are paths relative to the file.
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
# Source: client-go, tools/clientcmd/api/v1/types.go.
_FIELDS: Mapping[str, Mapping[str, type]] = {
    "cluster": {
        "server": str,
        "tls-server-name": str,
        "insecure-skip-tls-verify": bool,
        "certificate-authority": str,
        "certificate-authority-data": str,
        "proxy-url": str,
        "disable-compression": bool,
    },
    "user": {
        "client-certificate": str,
        "client-certificate-data": str,
        "client-key": str,
        "client-key-data": str,
        "token": str,
        "tokenFile": str,
        "as": str,
        "as-uid": str,
        "as-groups": list,
        "as-user-extra": dict,
        "username": str,
        "password": str,
        "auth-provider": dict,
        "exec": dict,
        "extensions": list,
    },
}
_RIVALS = (("token", "username"), ("tokenFile", "username"), ("exec", "auth-provider"))
_FIELD_HINT = "Correct the kubeconfig; nothing was sent to the cluster."
_TYPE_NAMES = {str: "text (in quotes)", bool: "true or false", list: "a list", dict: "a mapping"}
_QUOTED = re.compile(r"'[^']{4,}'|\"[^\"]{4,}\"")
_NO_YAML = "this is not YAML"
_MOST_NAMED = 20


class Context(msgspec.Struct, frozen=True):
    """One context to choose from, with its names as written in the file."""

    name: str
    cluster: str = ""
    server: str = ""
    """Empty if the cluster's entry is missing."""
    user: str = ""
    namespace: str = "default"


class ResolvedContext(msgspec.Struct, frozen=True):
    """A context with the entries of its cluster and user."""

    context: Context
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]


class Kubeconfig(msgspec.Struct, frozen=True):
    """Several kubeconfig files merged into one. The first definition of a name wins, as in kubectl."""

    files: tuple[Path, ...] = ()
    current: str = ""
    """Name of the current context; empty if no file sets one."""
    contexts: tuple[Context, ...] = ()
    problems: tuple[str, ...] = ()
    """One sentence for each file that was skipped."""
    _clusters: Mapping[str, Mapping[str, Any]] | None = None
    _users: Mapping[str, Mapping[str, Any]] | None = None

    def resolve(self, name: str = "") -> ResolvedContext:
        """Return a context, by default the current one, with its cluster and user.

        Raises:
            NoCluster: The context is missing or incomplete; or, without a name, a file was skipped, which
                may have set the current context.
        """
        files = ", ".join(str(path) for path in self.files)
        if self.problems and not name:
            raise NoCluster(UNUSABLE, "\n".join(self.problems), SANDBOX_HINT)
        context_name = name or self.current
        context = next((each for each in self.contexts if each.name == context_name), None)
        if context is None:
            names = ", ".join(each.name for each in self.contexts[:_MOST_NAMED])
            what = f"There is no context {context_name}." if context_name else "There is no current context."
            found = f"There are: {names}, in" if names else "There are none in"
            why = f"{found} {files}." if files else "There is no kubeconfig file."
            raise NoCluster(sanitize(what), sanitize(why), SANDBOX_HINT)
        cluster = (self._clusters or {}).get(context.cluster)
        user = (self._users or {}).get(context.user)
        for what, entry, called in (("cluster", cluster, context.cluster), ("user", user, context.user)):
            if entry is None and (called or what == "cluster"):
                named = f"names {what} {called}, which it does not define" if called else f"has no {what}"
                why = f"{files}: context {context_name} {named}."
                raise NoCluster(UNUSABLE, sanitize(why), SANDBOX_HINT)
        if not context.server:
            raise NoCluster(UNUSABLE, sanitize(f"{files}: {context.cluster} names no server."), SANDBOX_HINT)
        for what, called, entry in (("cluster", context.cluster, cluster), ("user", context.user, user)):
            if problem := _field_problem(what, entry or {}):
                raise NoCluster(UNUSABLE, sanitize(f"{files}: {what} {called}: {problem}"), _FIELD_HINT)
        return ResolvedContext(context, cluster or {}, user or {})


def kubeconfig_files() -> list[Path]:
    """Return the existing files that kubectl would merge."""
    text = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for part in text.split(os.pathsep) if part and _is_there(path := expand_home(part))]


def read_kubeconfig(kubeconfig: str = "") -> Kubeconfig:
    """Read and merge this kubeconfig, or kubectl's default files; skip unreadable ones.

    Raises:
        NoCluster: The named file does not exist.
    """
    if not kubeconfig:
        return merge(kubeconfig_files())
    path = expand_home(kubeconfig)
    if not _is_there(path):
        why = sanitize(f"There is no kubeconfig at {kubeconfig}.")
        raise NoCluster("No cluster to talk to.", why, SANDBOX_HINT)
    return merge([path])


def _is_there(path: Path) -> bool:
    # `/dev/null` stands for no kubeconfig, as in kubectl.
    return os.path.exists(path) and str(path) != os.devnull


def merge(files: Sequence[Path]) -> Kubeconfig:
    """Merge kubeconfigs; earlier files win."""
    current = ""
    sections: dict[str, dict[str, Mapping[str, Any]]] = {section: {} for section in _PATHS}
    problems: list[str] = []
    for path in files:
        try:
            found = _parse(path)
            entries = {section: list(_entries(found, section, path)) for section in sections}
        except (OSError, ValueError, RecursionError) as error:
            problems.append(sanitize(f"{path}: {_describe_error(error)}"))
            continue
        current = current or str(found.get("current-context") or "")
        for section, named in entries.items():
            for name, entry in named:
                sections[section].setdefault(name, entry)
    contexts = [_context(name, entry, sections["clusters"]) for name, entry in sections["contexts"].items()]
    return Kubeconfig(
        tuple(files), current, tuple(contexts), tuple(problems), sections["clusters"], sections["users"]
    )


# Keys of one mapping, merge keys (`<<`) included.
_MOST_KEYS = 10_000
# libyaml overflows the stack of the process somewhere above 20,000 levels. A level needs a bracket, or an
# indicator further to the right.
_MOST_LEVELS = 5_000
_FAR_RIGHT = re.compile(rf"^.{{{_MOST_LEVELS}}}.*[-?:](?:\s|$)", re.MULTILINE)


def _parse(path: Path) -> Mapping[str, Any]:
    import yaml

    text = read_named_file(path).decode()
    is_deep = text.count("[") + text.count("{") > _MOST_LEVELS or _FAR_RIGHT.search(text)
    base = yaml.SafeLoader if is_deep else getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc,valid-type]
        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_KEYS:  # merge keys of merge keys grow exponentially
                raise yaml.constructor.ConstructorError(None, None, "too many merged keys", node.start_mark)

    try:
        found = yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        if error.problem_mark is None:
            raise ValueError(_NO_YAML) from None
        problem = _QUOTED.sub("…", error.problem or "no YAML")
        raise ValueError(f"line {error.problem_mark.line + 1}: {problem}") from None
    except (yaml.YAMLError, AttributeError, LookupError, ValueError):  # a value that is not what its tag says
        raise ValueError(_NO_YAML) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("this is not a kubeconfig")
    return found


def _entries(found: Mapping[str, Any], section: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    listed = found.get(section) or []
    if not isinstance(listed, list):
        raise ValueError(f"this is not a kubeconfig, its {section} are not a list")
    names = [str(item.get("name")) for item in listed if isinstance(item, dict)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"two {section} are named {twice}: rename or remove one")
    for item in listed:
        entry = item.get(section.removesuffix("s")) if isinstance(item, dict) else None
        if not isinstance(entry, dict) or item.get("name") in (None, ""):
            continue
        fields = {key: value for key, value in entry.items() if value not in (None, "")}
        for key in _PATHS[section]:
            if key in fields:
                fields[key] = _absolute(str(fields[key]), path)
        plugin = fields.get("exec")
        # A command without a slash is looked up in PATH.
        if section == "users" and isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
            fields["exec"] = {**plugin, "command": _absolute(str(plugin["command"]), path)}
        yield str(item["name"]), fields


def _field_problem(section: str, entry: Mapping[str, Any]) -> str:
    # An unknown field of a user is not skipped: it may change the identity.
    fields = _FIELDS[section]
    for key, value in entry.items():
        if key in fields and not isinstance(value, fields[key]):
            return f"{key} must be {_TYPE_NAMES[fields[key]]}."
        if key not in fields and section == "user":
            return f"{key} is not a known field, and it may change whom you act as."
    if section == "user":
        if "as" not in entry and (more := {"as-uid", "as-groups", "as-user-extra"} & entry.keys()):
            return f"{min(more)} needs a user to act as: there is no `as`."
        for first, second in _RIVALS:
            if first in entry and second in entry:
                return f"{first} and {second} are two ways to log in, and only one may be given."
    return ""


def _absolute(named: str, path: Path) -> str:
    return os.path.normpath(path.absolute().parent / named)


def _context(name: str, entry: Mapping[str, Any], clusters: Mapping[str, Mapping[str, Any]]) -> Context:
    cluster = str(entry.get("cluster", ""))
    server = str((clusters.get(cluster) or {}).get("server", ""))
    namespace = str(entry.get("namespace", "default"))
    return Context(name, cluster, server, str(entry.get("user", "")), namespace)


def _describe_error(error: Exception) -> str:
    # Never quotes the file: it may hold tokens.
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return f"{_NO_YAML}."
    return f"{error}."


class ConfigOverrides(msgspec.Struct, frozen=True):
    """Empty values leave the kubeconfig's."""

    server: str = ""
    """Address of the API server; the certificate authority stays that of the kubeconfig."""
    token: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    request_s: float = 0.0
    """Longest time for an answer that is no stream; 0 for the default."""

    def user(self, user: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a user entry of a kubeconfig with these settings."""
        found = {"token": self.token} if self.token else dict(user)
        # As kubectl, impersonation of the kubeconfig does not mix with that of the command line.
        impersonation = {"as", "as-uid", "as-groups", "as-user-extra"}
        if self.as_user or self.as_groups:
            found = {name: value for name, value in found.items() if name not in impersonation}
            found |= {"as": self.as_user, "as-groups": list(self.as_groups)}
        return found
