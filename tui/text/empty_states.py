"""What a list says while it has nothing to show: what is true, and what to press. Four lines at most."""

from __future__ import annotations

from k8s.snapshot import ClusterSnapshot
from tui.text.format import count, plural

ELSEWHERE = ":ns switches namespace · ctrl+r refreshes · :info shows your permissions"
"""What to press where nothing may be read."""
READING = "Reading the cluster…"
"""While the first lists have not come."""


def no_cluster(snapshot: ClusterSnapshot) -> str:
    """Say that no cluster is there yet, or that it does not answer; nothing where neither is so."""
    if not snapshot.stale:
        return "" if snapshot.is_synced else snapshot.progress or READING
    if not snapshot.context:
        return (
            "There is no cluster to connect to.\n"
            "ctrl+r retries once there is a kubeconfig · q quits\n"
            "gpuconsole --sandbox makes a small cluster on this machine."
        )
    if snapshot.trouble == "login expired":
        return (
            "The cluster does not accept your credentials.\n"
            "Log in again, then press ctrl+r to retry.\n"
            ":ctx lists the other contexts of your kubeconfig."
        )
    if snapshot.trouble == "no Kubernetes API":
        return (
            "This address answers, but is no Kubernetes API.\n"
            "Check the server's address in the kubeconfig, then press ctrl+r to retry.\n"
            ":ctx lists the other contexts of your kubeconfig."
        )
    return (
        "The cluster cannot be reached.\n"
        "Retrying automatically; ctrl+r retries now.\n"
        ":ctx lists the other contexts of your kubeconfig."
    )


def no_jobs(snapshot: ClusterSnapshot, *, is_read_only: bool) -> str:
    """Say that there are no jobs, and what of the cluster has to be known before one makes any."""
    if words := no_cluster(snapshot):
        return words
    where = f"in namespace {snapshot.namespace}" if snapshot.namespace else "on this cluster"
    unread = any(
        not missing.shown for name, missing in snapshot.problems.items() if name not in ("nodes", "pods")
    )
    if unread and not snapshot.kinds:
        return f"This user may not list jobs {where}.\n{ELSEWHERE}"
    lines = [f"No jobs {where}."]
    shown = next((missing.shown for missing in snapshot.problems.values() if missing.shown), "")
    if shown:
        lines.append(f"You can see namespace {shown} only; jobs elsewhere are not shown.")
    if snapshot.nodes and not snapshot.gpus_total and "nodes" not in snapshot.problems:
        lines.append("No node offers a GPU: a job that requests one would wait (tab: nodes).")
    if not unread and set(snapshot.kinds) == {"Job"}:
        lines.append("No training operator is installed: there are Jobs, but no PyTorchJobs.")
    keys = [] if is_read_only else ["n creates one"]
    keys += ["0 shows all namespaces"] if snapshot.namespace and not shown else []
    return "\n".join([*lines[:3], " · ".join([*keys, ":ns switches namespace"])])


def no_faults(jobs: int) -> str:
    """Say that no job needs anybody."""
    words = "No faults: no job failed, restarts, is silent or is stuck."
    return f"{words}\nF shows all {count(jobs)}."


def only_older(jobs: int, days: float) -> str:
    """Say that all jobs are old."""
    ago = f"{days:g} day{'s' * (days != 1)} ago"
    return f"{plural(jobs, 'job')} finished more than {ago}, and none since.\no shows them."


def no_nodes(snapshot: ClusterSnapshot) -> str:
    """Say that there are no nodes."""
    if words := no_cluster(snapshot):
        return words
    if "nodes" in snapshot.problems:
        return "You may not list nodes, and no pod is visible on any.\nJobs are still shown (tab)."
    return "The cluster has no nodes yet, so nothing can run.\nThey will appear here."
