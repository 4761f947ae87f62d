"""Why a job waits, fails or restarts: one sentence, the facts below it, and what would help.

`gather` fetches what can matter for one job; everything after that is pure: `rules` is an ordered
table of causes, each a function from `Evidence` to a `Cause` or nothing.
"""

from __future__ import annotations

from k8s.client.client import Client
from k8s.diagnosis.answer import Answer, Fact
from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.gather import gather
from k8s.diagnosis.rules import explain
from k8s.snapshot import ClusterSnapshot, Job


async def answer_why(client: Client, job: Job, snapshot: ClusterSnapshot) -> Answer:
    """Look, and say why a job is as it is.

    Raises:
        KubeError: The cluster does not answer.
    """
    return explain(await gather(client, job, snapshot))


__all__ = ["Answer", "Evidence", "Fact", "answer_why", "explain", "gather"]
