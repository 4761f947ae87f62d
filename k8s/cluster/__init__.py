"""Joins nodes, pods and jobs into one picture in which the GPUs add up."""

from k8s.cluster.joiner import Joiner, Rows, join

__all__ = ["Joiner", "Rows", "join"]
