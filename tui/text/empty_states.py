"""Texts of empty lists: the reason and the keys that help. At most four lines."""

from __future__ import annotations

from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.errors import SANDBOX_CONTEXT
from tui.text.format import count, plural

# Advice where nothing may be read.
ELSEWHERE = ":ns switches namespace · ctrl+r refreshes · :info shows your permissions"
READING = "Reading the cluster…"


def no_cluster(snapshot: ClusterSnapshot) -> str:
    """Explain a missing or unreachable cluster; empty if it is connected."""
    if not snapshot.stale:
        return "" if snapshot.is_synced else snapshot.progress or READING
    if not snapshot.context:
        return (
            "There is no cluster to connect to.\n"
            "ctrl+r retries once there is a kubeconfig · q quits\n"
            "gpuconsole --sandbox starts a small cluster on this machine."
        )
    if snapshot.trouble == "login expired":
        return (
            "The cluster does not accept your credentials.\n"
            "Log in again, then press ctrl+r to retry.\n"
            ":ctx lists the other contexts of your kubeconfig."
        )
    if snapshot.trouble == "no Kubernetes API":
        return (
            "This address answers, but it is not a Kubernetes API.\n"
            "Check the server's address in the kubeconfig, then press ctrl+r to retry.\n"
            ":ctx lists the other contexts of your kubeconfig."
        )
    if snapshot.context == SANDBOX_CONTEXT:
        return (
            "The sandbox cannot be reached.\n"
            "If it has ended, start it in another terminal: gpuconsole sandbox start\n"
            "Retrying automatically; ctrl+r retries now."
        )
    return (
        "The cluster cannot be reached.\n"
        "Retrying automatically; ctrl+r retries now.\n"
        ":ctx lists the other contexts of your kubeconfig."
    )


def no_jobs(snapshot: ClusterSnapshot, *, is_read_only: bool) -> str:
    """Explain an empty job list."""
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
        lines.append("No node has a GPU: a job that requests one would wait (tab: nodes).")
    if not unread and set(snapshot.kinds) == {"Job"}:
        lines.append("No training operator is installed: there are Jobs, but no PyTorchJobs.")
    keys = [] if is_read_only else ["n creates one"]
    keys += ["0 shows all namespaces"] if snapshot.namespace and not shown else []
    return "\n".join([*lines[:3], " · ".join([*keys, ":ns switches namespace"])])


def no_faults(jobs: int) -> str:
    """Say that no job has faults."""
    words = "No faults: no job failed, restarts, is silent or is stuck."
    return f"{words}\nF shows all {count(jobs)}."


def only_older(jobs: int, days: float) -> str:
    """Say that all jobs finished long ago."""
    ago = f"{days:g} day{'s' * (days != 1)} ago"
    return f"{plural(jobs, 'job')} finished more than {ago}, and none since.\no shows them."


def no_lines(job: Job | None, instance: str, keys: str) -> str:
    """Explain an empty log of an instance, or of all; `keys` show the run before the last restart."""
    of_job = job.instances if job is not None else ()
    if any(each.restarts > each.rank_restarts for each in of_job if instance in ("", each.name)):
        return f"No lines yet since the last restart; {keys} shows the run before."
    return "No lines yet."


def no_nodes(snapshot: ClusterSnapshot) -> str:
    """Explain an empty list of nodes."""
    if words := no_cluster(snapshot):
        return words
    if "nodes" in snapshot.problems:
        return "You may not list nodes, and no pod is visible on any.\nJobs are still shown (tab)."
    return "The cluster has no nodes yet, so nothing can run.\nThey will appear here."
