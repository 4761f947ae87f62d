"""Names that people type for job kinds: the kinds' own and Arena's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from k8s.kinds import KINDS, JobKind

# Arena's short names that are not the kind's title without `job`.
_SHORT: Mapping[str, str] = {"py": "pytorch", "rj": "ray", "vj": "volcano"}
# Names of the list of all jobs.
_TAKEN = ("jobs", "job")
# Arena's names for kinds of other operators, shown where their pods exist.
KINDS_OF_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("et", "etjob", "deepspeed", "deepspeedjob", "dp"), "trainingjob"),
    **dict.fromkeys(("spark", "sparkjob"), "sparkapplication"),
    **dict.fromkeys(("horovod", "horovodjob", "hj"), "statefulset"),
}
_ET = "is a job of Alibaba's et-operator, which is not supported"
# Arena's names for kinds that cannot be created here, with the reason or an alternative.
NOT_MADE: Mapping[str, str] = {
    **dict.fromkeys(
        ("tf", "tfjob"), "TFJobs can be shown and deleted, but not created: use pytorch, mpi or job."
    ),
    **dict.fromkeys(
        ("horovod", "horovodjob", "hj"), "Arena's horovodjob is older than its MPIJob: use mpi instead."
    ),
    **dict.fromkeys(("et", "etjob"), f"An etjob {_ET}: use pytorch with --elastic."),
    **dict.fromkeys(("deepspeed", "deepspeedjob", "dp"), f"A deepspeedjob {_ET}: use mpi instead."),
    **dict.fromkeys(("spark", "sparkjob"), "Spark jobs are not supported."),
    **dict.fromkeys(
        ("volcano", "volcanojob", "vj"), "Volcano jobs can be shown and deleted, but not created."
    ),
    **dict.fromkeys(("ray", "rayjob", "rj"), "RayJobs can be shown and deleted, but not created."),
}


def words_of(kind: JobKind) -> tuple[str, ...]:
    """Return the names people type for a kind, Arena's first, such as `pytorch`."""
    title = kind.title.lower()
    word = str(getattr(kind, "word", "") or title.removesuffix("job").strip() or title)
    short = (each for each, long in _SHORT.items() if long == word)
    aliases: tuple[str, ...] = getattr(kind, "aliases", ())
    return tuple(dict.fromkeys((word, title.replace(" ", ""), *aliases, *short)))


@cache
def short_kind(kind: str) -> str:
    """Return the first name people type for a kind, such as `pytorch`; the kind itself if it has none."""
    return next((words_of(each)[0] for each in KINDS if each.resource.kind == kind), kind)


def find_kind(word: str) -> str:
    """Return the kind that a word stands for, such as `PyTorchJob`; empty if there is none."""
    return next((kind.resource.kind for kind in KINDS if matches_kind(kind, word)), "")


def words_by_kind() -> Mapping[str, Sequence[str]]:
    """Return the commands that show the jobs of each kind: its plural first, then shorter names."""
    found: dict[str, dict[str, None]] = {}
    for kind in KINDS:
        words = (kind.resource.plural, kind.resource.kind.lower(), *words_of(kind))
        found.setdefault(kind.resource.kind, {}).update(dict.fromkeys(words))
    return {
        kind: [word for word in words if word not in _TAKEN and " " not in word]
        for kind, words in found.items()
    }


def matches_kind(kind: JobKind, words: str) -> bool:
    """Return True if the name stands for the kind: `Job`, `jobs`, Arena's `pytorch`, or `jobs.batch`."""
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
