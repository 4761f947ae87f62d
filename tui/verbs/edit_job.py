"""The `kubectl edit` of a job on the cluster in use."""

from __future__ import annotations

import shutil
from dataclasses import replace

from k8s.client.auth.cluster_config import IN_CLUSTER, ClusterConfig
from k8s.kinds import JobRef, kind_of
from k8s.text.errors import KubeError
from tui.settings.options import ConsoleOptions, cluster_flags


def edit_argv(options: ConsoleOptions, config: ClusterConfig, ref: JobRef) -> list[str]:
    """Return the command line of `kubectl edit` for a job.

    Args:
        options: Name the kubeconfig, the sandbox's too, and whom to act as.
        config: The cluster in use; its context may no longer be the kubeconfig's current one.
        ref: The job.

    Raises:
        KubeError: kubectl is not installed, or would act as another user.
    """
    what = f"Could not edit {ref.kind} {ref.name}."
    if shutil.which("kubectl") is None:
        hint = "Install kubectl: https://kubernetes.io/docs/tasks/tools/"
        raise KubeError(what, "kubectl, which edits it, is not found.", hint)
    if options.overrides.token:
        why = "kubectl would act as another user: a token is not passed on, as ps would show it."
        raise KubeError(what, why, "Put the token into a kubeconfig.")
    context = "" if config.context == IN_CLUSTER else config.context
    there = cluster_flags(replace(options, namespace=ref.namespace, context=context))
    return ["kubectl", *there, "edit", f"{kind_of(ref).resource.full_name}/{ref.name}"]
