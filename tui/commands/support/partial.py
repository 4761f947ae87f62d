"""Report incomplete results: one line on stderr, and `partial` in JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from k8s.snapshot import ClusterSnapshot, Missing
from k8s.text.sanitize import sanitize
from tui.commands.support.output import write_object, write_stderr
from tui.tables.column import Values
from tui.text.format import in_namespace


def write_items(items: Sequence[Values], missing: Sequence[Missing], form: str, **more: object) -> None:
    """Print a list as JSON or YAML; `partial` names the resources that are incomplete."""
    partial = {"partial": list(dict.fromkeys(resources_of(missing)))} if missing else {}
    write_object({"items": items, **more, **partial}, form)


def write_missing(missing: Sequence[Missing]) -> None:
    """Print the incomplete resources on stderr in one line; nothing if there are none."""
    if missing:
        write_stderr(missing_line(missing))


def no_jobs(snapshot: ClusterSnapshot, job_type: str = "") -> str:
    """Return the text for an empty list of jobs, or of jobs of one kind."""
    where = in_namespace(snapshot.namespace)
    return f"No jobs of type {job_type}{where}." if job_type else f"No jobs{where}."


def missing_line(missing: Sequence[Missing]) -> str:
    """Return the incomplete resources, and where the user may not list them."""
    names = dict(zip(missing, resources_of(missing), strict=True))
    sentences = [sanitize(each.words) for each in missing if each.verb == "read"]
    if hidden := [each for each in missing if not each.shown and each.verb != "read"]:
        namespaces = {each.namespace for each in hidden}
        where = in_namespace(namespaces.pop() if len(namespaces) == 1 else "")
        sentences.append(f"Not shown: {_joined(names, hidden)}; you may not list them{where}.")
    for namespace in dict.fromkeys(each.shown for each in missing if each.shown):
        narrowed = [each for each in missing if each.shown == namespace]
        sentences.append(
            f"Only in namespace {namespace}: {_joined(names, narrowed)}; you may not list them elsewhere."
        )
    return " ".join(sentences)


def resources_of(missing: Sequence[Missing]) -> list[str]:
    """Return resources by plural, with the group where two share one."""
    plurals = [each.resource.partition(".")[0] for each in missing]
    counts = Counter(plurals)
    return [
        each.resource if counts[plural] > 1 else plural for each, plural in zip(missing, plurals, strict=True)
    ]


def _joined(names: Mapping[Missing, str], missing: Sequence[Missing]) -> str:
    return ", ".join(names[each] for each in missing)
