"""What would go wrong with a job, found before it is created: by rule, and by asking the cluster.

Creates nothing and changes nothing. What the user may not read is not known, and nothing is said of it.
"""

from k8s.preflight.cluster_checks import check_against_cluster
from k8s.preflight.finding import Finding
from k8s.preflight.object_checks import check_objects
from k8s.preflight.static_checks import check_statically

__all__ = ["Finding", "check_against_cluster", "check_objects", "check_statically"]
