"""Ranks and rendezvous of tasks that Slurm's `srun` started.

Source: srun(1), "OUTPUT ENVIRONMENT VARIABLES". Only the variables of a job step count: a batch script has a
SLURM_PROCID of its own.
"""

import re
from collections.abc import Mapping

RANK, TASKS, LOCAL_RANK = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"

_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_FIRST_HOST = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_FIRST_OF_RANGE = re.compile(r"\[([^\],-]+)[^\]]*\]")


def is_step_of_many(env: Mapping[str, str]) -> bool:
    """Return True if srun started this process as one of several; False for a lone shell in an allocation."""
    return RANK in env and env.get(TASKS, "1").strip() not in ("", "1")


def tasks_on_node(env: Mapping[str, str]) -> int:
    """Return the tasks of the step on this node; 0 if unknown.

    SLURM_STEP_TASKS_PER_NODE is `2(x3),1`: two on each of the first three nodes.
    """
    node = env.get("SLURM_NODEID", "")
    left = int(node) if node.isdecimal() else -1
    for tasks, times in _REPEATED.findall(env.get("SLURM_STEP_TASKS_PER_NODE", "")):
        if 0 <= left < int(times or 1):
            return int(tasks)
        left -= int(times or 1)
    return 0


def first_host(env: Mapping[str, str]) -> str:
    """Return the first node of the step, the host of rank 0; "" if unknown.

    >>> first_host({"SLURM_STEP_NODELIST": "gpu[03-07,9],login1"})
    'gpu03'
    """
    found = _FIRST_HOST.match(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", ""))
    return _FIRST_OF_RANGE.sub(r"\1", found[0]) if found else ""
