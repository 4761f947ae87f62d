"""Joins nodes, pods and jobs into the rows of a `ClusterSnapshot`, in which the GPUs add up.

Pure: asks no server; a row that did not change is the same value in the next join.
"""

from k8s.cluster.joiner import Joiner, Rows, in_turns, join

__all__ = ["Joiner", "Rows", "in_turns", "join"]
