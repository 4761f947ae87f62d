"""The modules that are broken, each with the tests that should notice: where a mistake costs something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_EVENT_FILES = ("tests/trainer/test_event_files.py", "tests/trainer/test_event_formats.py")

TESTS: Mapping[str, Sequence[str]] = {
    "k8s/client/rate_limiter.py": ("tests/k8s/client/test_rate_limiter.py",),
    "k8s/client/server_clock.py": ("tests/k8s/client/test_server_clock.py",),
    "k8s/client/transport.py": ("tests/k8s/client/test_client.py", "tests/k8s/client/test_connection.py"),
    "k8s/client/auth/exec_plugin.py": ("tests/k8s/client/test_exec_plugin.py",),
    "k8s/client/auth/kubeconfig.py": ("tests/k8s/client/test_kubeconfig.py",),
    "k8s/cluster/job_rows.py": ("tests/k8s/cluster",),
    "k8s/cluster/joiner.py": ("tests/k8s/cluster",),
    "k8s/cluster/node_rows.py": ("tests/k8s/cluster",),
    "k8s/cluster/owner_chain.py": ("tests/k8s/cluster",),
    "k8s/diagnosis/pending.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/shortage.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/causes/capacity.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/causes/held_back.py": ("tests/k8s/diagnosis",),
    "k8s/logs/follow.py": ("tests/k8s/logs",),
    "k8s/logs/lines.py": ("tests/k8s/logs",),
    "k8s/logs/read.py": ("tests/k8s/logs",),
    "k8s/models/quantity.py": ("tests/k8s/models",),
    "k8s/scheduling/predicates.py": ("tests/k8s/scheduling", "tests/k8s/diagnosis"),
    "k8s/scheduling/requests.py": ("tests/k8s/scheduling",),
    "k8s/status/job.py": ("tests/k8s/status",),
    "k8s/status/pod.py": ("tests/k8s/status",),
    "k8s/text/redact.py": ("tests/k8s/text",),
    "k8s/text/sanitize.py": ("tests/k8s/text",),
    "k8s/watch/backoff.py": ("tests/k8s/watch", "tests/k8s/client/test_reliability.py"),
    "k8s/watch/discovery.py": ("tests/k8s/watch", "tests/tui/feeds"),
    "k8s/watch/mirror.py": ("tests/k8s/watch", "tests/k8s/client/test_reliability.py"),
    "trainer/tfevents/columns.py": _EVENT_FILES,
    "trainer/tfevents/event.py": _EVENT_FILES,
    "trainer/tfevents/records.py": _EVENT_FILES,
    "tui/charts/downsample.py": ("tests/tui/charts",),
    "tui/charts/series.py": ("tests/tui/charts",),
    "tui/feeds/cluster_feed.py": ("tests/tui/feeds", "tests/k8s/client/test_reliability.py"),
    "tui/feeds/trouble.py": ("tests/tui/feeds", "tests/k8s/client/test_reliability.py"),
    "tui/jobs/delete_plan.py": ("tests/tui/jobs/test_delete_plan.py",),
    "tui/jobs/events.py": ("tests/tui/jobs/test_events.py",),
    "tui/jobs/filters.py": ("tests/tui/screens/test_jobs.py",),
    "tui/text/filter_query.py": ("tests/tui/text/test_filter_query.py",),
    "tui/text/format.py": ("tests/tui/text/test_format.py",),
}
"""Module to the test files, or folders of them, that are run when it is broken."""
