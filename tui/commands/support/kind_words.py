"""What people type for a kind of job: its own words, and those of Arena."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.kinds import JobKind

_SHORT: Mapping[str, str] = {"py": "pytorch", "rj": "ray", "vj": "volcano"}
"""Arena's short words that are not a kind's title without `job`."""
KINDS_OF_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("et", "etjob", "deepspeed", "deepspeedjob", "dp"), "trainingjob"),
    **dict.fromkeys(("spark", "sparkjob"), "sparkapplication"),
    **dict.fromkeys(("horovod", "horovodjob", "hj"), "statefulset"),
}
"""Arena's words for kinds of other operators' objects: shown where their pods are there."""
_ET = "is a job of Alibaba's et-operator, which is not supported"
NOT_MADE: Mapping[str, str] = {
    **dict.fromkeys(
        ("tf", "tfjob"), "A TFJob is shown and deleted here, but not made: use pytorch, mpi or job."
    ),
    **dict.fromkeys(
        ("horovod", "horovodjob", "hj"), "Arena's horovodjob is older than its MPIJob: use mpi instead."
    ),
    **dict.fromkeys(("et", "etjob"), f"An etjob {_ET}: use pytorch with --elastic-min and --elastic-max."),
    **dict.fromkeys(("deepspeed", "deepspeedjob", "dp"), f"A deepspeedjob {_ET}: use mpi instead."),
    **dict.fromkeys(("spark", "sparkjob"), "A sparkjob trains no model on GPUs: it is not supported."),
    **dict.fromkeys(
        ("volcano", "volcanojob", "vj"), "A Volcano Job is shown and deleted here, but not made."
    ),
    **dict.fromkeys(("ray", "rayjob", "rj"), "A RayJob is shown and deleted here, but not made."),
}
"""Arena's words for kinds of which no jobs are made here, and why or what instead."""


def words_of(kind: JobKind) -> tuple[str, ...]:
    """Return what people type for a kind: Arena's word first, as `pytorch`."""
    title = kind.title.lower()
    word = str(getattr(kind, "word", "") or title.removesuffix("job").strip() or title)
    short = (each for each, long in _SHORT.items() if long == word)
    aliases: tuple[str, ...] = getattr(kind, "aliases", ())
    return tuple(dict.fromkeys((word, title.replace(" ", ""), *aliases, *short)))


def matches_kind(kind: JobKind, words: str) -> bool:
    """Tell whether a kind is meant by `Job`, `jobs`, Arena's `pytorch` or, of several, `jobs.batch`."""
    word = KINDS_OF_OTHERS.get(words.lower(), words.lower())
    resource = kind.resource
    name = resource.kind.lower()
    full = f"{resource.plural}.{resource.group}"
    return word in (
        name,
        name.removesuffix("job"),
        *words_of(kind),
        *map(str.lower, (kind.title, resource.plural, full)),
    )
