"""GPU warnings as evidence in the explanation of a job's state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from k8s.gpus.gpu_warnings import GpuWarning
from k8s.gpus.readings import GpuKey, RankReading
from k8s.reasons.cause import Cause, Fact
from tui.text.format import plural
from tui.text.gpu_words import ADVICE

FACT = "gpu"
# Each warning with the rank it slows down; the worst of each GPU first.
JobWarnings = Sequence[tuple[RankReading, GpuWarning]]


def in_order(
    ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]
) -> list[tuple[RankReading, GpuWarning]]:
    """Return the warnings of a job's GPUs, serious ones first."""
    found = [
        (rank, warning)
        for rank in ranks
        if rank.gpu is not None
        for warning in warnings.get(rank.gpu.key, ())
    ]
    return sorted(found, key=lambda each: not each[1].is_serious)


def describe_place(rank: RankReading) -> str:
    """Describe a rank's GPU: `Rank 5, GPU 1 of a100-2`."""
    gpu = "" if rank.gpu is None else f"GPU {rank.gpu.name} of {rank.gpu.node}"
    return gpu if rank.rank is None else f"Rank {rank.rank}, {gpu}"


def with_gpu_warnings(answer: Cause, warnings: JobWarnings) -> Cause:
    """Add the GPU warnings and their advice to an answer."""
    if not warnings:
        return answer
    facts = tuple(Fact(FACT, f"{describe_place(rank)}: {warning.text}") for rank, warning in warnings)
    advice = dict.fromkeys((*answer.help, *(ADVICE[warning.kind] for _, warning in warnings)))
    serious = sum(warning.is_serious for _, warning in warnings)
    sentence = answer.sentence
    if serious:
        sentence = f"{sentence.rstrip('.')}; {plural(serious, 'GPU warning')}, see below."
    return replace(answer, sentence=sentence, facts=(*facts, *answer.facts), help=tuple(advice))
