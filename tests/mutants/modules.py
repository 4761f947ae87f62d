"""The modules that are broken, each with the tests that should notice: where a mistake costs something."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_EVENT_FILES = ("tests/trainer/test_event_files.py", "tests/trainer/test_event_formats.py")
_RELIABLE = ("tests/k8s/client/test_reliability.py",)
_LOGIN = ("tests/k8s/client/test_exec_plugin.py", "tests/k8s/client/test_certificates_and_tokens.py")
_OWNED = ("tests/k8s/jobs/test_owned_objects.py", "tests/k8s/jobs/test_arena.py")
_CREATION = tuple(f"tests/k8s/jobs/test_{each}.py" for each in ("create", "transaction", "owned_objects"))
_FIELDS = tuple(f"tests/k8s/kinds/test_{each}.py" for each in ("every_field", "guides", "from_manifest"))
_MPI = ("tests/k8s/kinds/test_mpi_jobs.py", "tests/k8s/kinds/test_mpi_job_v1alpha1.py")
_FORM = tuple(
    f"tests/tui/jobs/test_{each}.py" for each in ("form_fields", "new_job", "earlier_runs", "preflight")
)
_TEMPLATES = ("tests/tui/jobs/test_job_templates.py",)
# Tests import the package, not its modules: they are not found by their imports.
_SPEC = (
    "tests/k8s/job_spec",
    "tests/k8s/kinds/test_every_field.py",
    "tests/k8s/kinds/test_roles.py",
    "tests/tui/jobs/test_form_fields.py",
    "tests/tui/commands/test_submit_flags.py",
)

TESTS: Mapping[str, Sequence[str]] = {
    "k8s/client/rate_limiter.py": ("tests/k8s/client/test_rate_limiter.py",),
    "k8s/client/connection.py": ("tests/k8s/client/test_connection.py", *_LOGIN),
    "k8s/client/transport.py": ("tests/k8s/client/test_client.py", "tests/k8s/client/test_connection.py"),
    "k8s/client/auth/exec_plugin.py": _LOGIN,
    "k8s/client/auth/kubeconfig.py": ("tests/k8s/client/test_kubeconfig.py",),
    "k8s/cluster/job_builder.py": ("tests/k8s/cluster",),
    "k8s/cluster/joiner.py": ("tests/k8s/cluster",),
    "k8s/cluster/node_rows.py": ("tests/k8s/cluster",),
    "k8s/cluster/owner_chain.py": ("tests/k8s/cluster",),
    "k8s/diagnosis/pending.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/shortage.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/causes/unschedulable.py": ("tests/k8s/diagnosis",),
    "k8s/diagnosis/causes/held_back.py": ("tests/k8s/diagnosis",),
    "k8s/job_spec/field_types.py": _SPEC,
    "k8s/job_spec/parts.py": _SPEC,
    "k8s/job_spec/rules.py": _SPEC,
    "k8s/job_spec/spec.py": _SPEC,
    "k8s/jobs/arena_objects.py": _OWNED,
    "k8s/jobs/owned_objects.py": _OWNED,
    "k8s/jobs/create.py": _CREATION,
    "k8s/jobs/transaction.py": _CREATION,
    "k8s/kinds/batch_job.py": (*_FIELDS, "tests/k8s/kinds/test_batch_job.py"),
    "k8s/kinds/kubeflow/mpi_manifest.py": (*_FIELDS, *_MPI),
    "k8s/kinds/kubeflow/pytorch_job.py": (*_FIELDS, "tests/k8s/kinds/test_pytorch_job.py"),
    "k8s/kinds/kubeflow/train_job.py": (*_FIELDS, "tests/k8s/kinds/test_train_job.py"),
    "k8s/kinds/pods/command.py": _FIELDS,
    "k8s/kinds/pods/env.py": _FIELDS,
    "k8s/kinds/pods/labels.py": _FIELDS,
    "k8s/kinds/pods/placement.py": _FIELDS,
    "k8s/kinds/pods/resources.py": _FIELDS,
    "k8s/kinds/pods/volumes.py": _FIELDS,
    "k8s/kinds/t9k/t9k_pytorch_job.py": (*_FIELDS, "tests/k8s/kinds/test_t9k_pytorch_job.py"),
    "k8s/logs/follow.py": ("tests/k8s/logs",),
    "k8s/logs/lines.py": ("tests/k8s/logs",),
    "k8s/logs/read.py": ("tests/k8s/logs",),
    "k8s/models/quantity.py": ("tests/k8s/models",),
    "k8s/preflight/cluster_checks.py": ("tests/k8s/preflight",),
    "k8s/preflight/object_checks.py": ("tests/k8s/preflight",),
    "k8s/preflight/limits.py": ("tests/k8s/preflight",),
    "k8s/preflight/static_checks.py": ("tests/k8s/preflight",),
    "k8s/scheduling/predicates.py": ("tests/k8s/scheduling", "tests/k8s/diagnosis"),
    "k8s/scheduling/requests.py": ("tests/k8s/scheduling",),
    "k8s/status/job.py": ("tests/k8s/status",),
    "k8s/status/pod.py": ("tests/k8s/status",),
    "k8s/telemetry/gpu_warnings.py": ("tests/k8s/telemetry/test_gpu_warnings.py",),
    "k8s/telemetry/history.py": ("tests/k8s/telemetry",),
    "k8s/telemetry/job_ranks.py": ("tests/k8s/telemetry/test_job_ranks.py",),
    "k8s/telemetry/reader.py": ("tests/k8s/telemetry",),
    "k8s/telemetry/dcgm.py": ("tests/k8s/telemetry/test_dcgm.py",),
    "k8s/telemetry/exporters.py": ("tests/k8s/telemetry",),
    "k8s/telemetry/prometheus.py": ("tests/k8s/telemetry/test_prometheus.py",),
    "k8s/telemetry/prometheus_text.py": ("tests/k8s/telemetry/test_prometheus.py",),
    "k8s/text/redact.py": ("tests/k8s/text",),
    "k8s/text/sanitize.py": ("tests/k8s/text",),
    "k8s/cluster/backoff.py": ("tests/k8s/cluster", *_RELIABLE),
    "k8s/cluster/discovery.py": ("tests/k8s/cluster", "tests/tui/feeds"),
    "k8s/cluster/mirror.py": ("tests/k8s/cluster", *_RELIABLE),
    "trainer/tfevents/columns.py": _EVENT_FILES,
    "trainer/tfevents/event.py": _EVENT_FILES,
    "trainer/tfevents/records.py": _EVENT_FILES,
    "tui/charts/series.py": ("tests/tui/charts",),
    "tui/feeds/cluster_feed.py": ("tests/tui/feeds", *_RELIABLE),
    "tui/jobs/delete_plan.py": ("tests/tui/jobs/test_delete_plan.py",),
    "tui/jobs/events.py": ("tests/tui/jobs/test_events.py",),
    "tui/jobs/filters.py": ("tests/tui/jobs/test_filters.py", "tests/tui/screens/test_jobs.py"),
    "tui/jobs/new_job/draft.py": ("tests/tui/jobs/test_draft.py", "tests/tui/screens/new_job/test_draft.py"),
    "tui/jobs/new_job/fields.py": _FORM,
    "tui/jobs/new_job/form_spec.py": _FORM,
    "tui/jobs/new_job/form_model.py": (*_FORM, *_TEMPLATES),
    "tui/jobs/new_job/job_templates.py": _TEMPLATES,
    "tui/jobs/new_job/manifest_edits.py": ("tests/tui/jobs/test_manifest_edits.py",),
    "tui/jobs/new_job/preflight.py": _FORM,
    "tui/text/filter_query.py": ("tests/tui/text/test_filter_query.py",),
    "tui/text/format.py": ("tests/tui/text/test_format.py",),
}
"""Module to the test files, or folders of them, that are run first when it is broken."""

_LEFT_OUT = {"test_shape.py", "real_cluster", "live", "soak", "load", "bench"}


def importers_of(root: Path, module: str) -> list[str]:
    """Return the other test files that import a module: they are run if the first ones notice nothing.

    Files that need a real cluster, or much time, are left out.
    """
    package, _, stem = module.removesuffix(".py").replace("/", ".").rpartition(".")
    imports = re.compile(rf"^ *from {package}(?:\.{stem} import| import .*\b{stem}\b)", re.MULTILINE)
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        is_first = any(name == each or name.startswith(f"{each}/") for each in TESTS[module])
        if not is_first and not _LEFT_OUT.intersection(name.split("/")):
            found += [name] if imports.search(path.read_text()) else []
    return found
