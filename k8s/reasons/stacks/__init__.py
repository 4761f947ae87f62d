"""Stacks of a running job: what each rank is doing, and which collective it misses.

Asks by `exec` in the pods, and changes nothing there.
"""

from k8s.reasons.stacks.rank_stacks import StackGroup, StackReport, inspect_ranks

__all__ = ["StackGroup", "StackReport", "inspect_ranks"]
