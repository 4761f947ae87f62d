"""Find problems of a job before it is created, by rules and by asking the cluster.

Read only. Anything that the user may not read is not checked.
"""

from k8s.preflight.cluster_checks import check_against_cluster
from k8s.preflight.finding import Finding
from k8s.preflight.object_checks import check_objects
from k8s.preflight.static_checks import check_statically

__all__ = ["Finding", "check_against_cluster", "check_objects", "check_statically"]
