"""API resources that the console uses, and their paths."""

from __future__ import annotations

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """An API resource in one version."""

    group: str
    """API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` in manifests: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name in kubectl and RBAC: `pods`, `pytorchjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object or list; an empty namespace means all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.is_namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", is_namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
# Of device claims; its newest version is `v1` since Kubernetes 1.34, of taint rules since 1.37.
DEVICE_GROUP = "resource.k8s.io"
DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
JOBS = Resource("batch", "v1", "jobs", "Job")
# Templates of TrainJobs, cluster-wide and namespaced.
TRAINING_RUNTIMES = (
    Resource(
        "trainer.kubeflow.org",
        "v1alpha1",
        "clustertrainingruntimes",
        "ClusterTrainingRuntime",
        is_namespaced=False,
    ),
    Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime"),
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", is_namespaced=False
)
RULES_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", is_namespaced=False
)
