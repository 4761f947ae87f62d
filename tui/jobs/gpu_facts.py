"""What is wrong with a job's GPUs, among the reasons why it is as it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from k8s.diagnosis.answer import Answer, Fact
from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.job_ranks import RankReading
from k8s.telemetry.readings import GpuKey
from tui.text.format import plural
from tui.text.gpu_words import ADVICE

FACT = "gpu"
"""What facts about GPUs are called, in JSON too."""
JobWarnings = Sequence[tuple[RankReading, GpuWarning]]
"""Each warning with the rank that it slows down; the worst of each GPU first."""


def in_order(
    ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]
) -> list[tuple[RankReading, GpuWarning]]:
    """Return the warnings of a job's GPUs, what is serious before what may be as it should."""
    found = [
        (rank, warning)
        for rank in ranks
        if rank.gpu is not None
        for warning in warnings.get(rank.gpu.key, ())
    ]
    return sorted(found, key=lambda each: not each[1].is_serious)


def place_words(rank: RankReading) -> str:
    """Return which GPU it is, and whose: `Rank 5, GPU 1 of a100-2`."""
    gpu = "" if rank.gpu is None else f"GPU {rank.gpu.name} of {rank.gpu.node}"
    return gpu if rank.rank is None else f"Rank {rank.rank}, {gpu}"


def with_gpu_warnings(answer: Answer, warnings: JobWarnings) -> Answer:
    """Return an answer that also says what is wrong with the job's GPUs, and what would help."""
    if not warnings:
        return answer
    facts = tuple(Fact(FACT, f"{place_words(rank)}: {warning.words}") for rank, warning in warnings)
    advice = dict.fromkeys((*answer.help, *(ADVICE[warning.kind] for _, warning in warnings)))
    serious = sum(warning.is_serious for _, warning in warnings)
    sentence = answer.sentence
    if serious:
        sentence = f"{sentence.rstrip('.')}; {plural(serious, 'GPU warning')}, see below."
    return replace(answer, sentence=sentence, facts=(*facts, *answer.facts), help=tuple(advice))
