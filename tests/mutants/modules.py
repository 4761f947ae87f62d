"""Modules that are broken, where a mistake costs something, and the tests that should notice."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_BY_FOLDER = {
    "k8s/client": "rate_limiter connection transport auth/exec_plugin auth/kubeconfig",
    "k8s/cluster": "job_builder joiner node_rows owners backoff discovery mirror",
    "k8s/kinds/job_spec": "field_types parts rules spec",
    "k8s/jobs": "arena_objects owned_objects create transaction",
    "k8s/kinds": "batch_job carried_spec pod_labels pod_template pods_spec t9k",
    "k8s/kinds/kubeflow": "mpi_run pytorch_job train_job",
    "k8s/logs": "follow lines read",
    "k8s/models": "quantity",
    "k8s/reasons": "pending pod_rules shortage cluster_checks static_checks predicates requests",
    "k8s/reasons/causes": "unschedulable no_pods",
    "k8s/status": "job pod",
    "k8s/gpus": "gpu_warnings reader dcgm exporters prometheus",
    "k8s/text": "redact sanitize",
    "trainer/tfevents": "columns event",
    "tui/runs": "series",
    "tui/tables": "events filters",
    "tui/draft": "draft fields form_model job_draft job_templates manifest_edits preflight",
    "tui/text": "change_plans filter_query format",
}
MODULES = tuple(f"{folder}/{name}.py" for folder, names in _BY_FOLDER.items() for name in names.split())
_LEFT_OUT = {"real_cluster", "soak", "load", "bench", "mutants"}


def rounds_of(root: Path, module: str) -> list[tuple[str, ...]]:
    """Return the test files of a module in two rounds; the second is run if the first notices nothing.

    First come files that import the module and lie where its package has its tests, or all files there
    if none of them does; then the others there, and other importers of the module or of names of it that
    its package exports. Tests that need a real cluster, or much time, are left out.
    """
    home, imports, texts = _home_of(root, module), _imports(root, module), _tests_of(root)
    importers = [name for name, text in texts.items() if imports.search(text)]
    near = [name for name in texts if name.startswith(home)]
    first = [name for name in importers if name in near] or near or importers
    second = [name for name in dict.fromkeys([*near, *importers]) if name not in first]
    return [tuple(each) for each in (first, second) if each]


def _home_of(root: Path, module: str) -> str:
    """Return the innermost folder of tests that has the name of one of the module's packages."""
    packages = Path(module).parents
    return next(f"tests/{each}/" for each in packages if (root / "tests" / each).is_dir())


def _imports(root: Path, module: str) -> re.Pattern[str]:
    package, _, stem = module.removesuffix(".py").replace("/", ".").rpartition(".")
    exports = root / Path(module).parent / "__init__.py"
    ways = [rf"\.{stem} import", rf" import .*\b{stem}\b"]
    if exports.exists() and f".{stem} import" in exports.read_text():
        ways.append(" import")
    return re.compile(rf"^ *from {re.escape(package)}(?:{'|'.join(ways)})", re.MULTILINE)


@cache
def _tests_of(root: Path) -> dict[str, str]:
    """Return the texts of the test files by their paths below the root."""
    names = [path.relative_to(root) for path in sorted((root / "tests").rglob("test_*.py"))]
    return {each.as_posix(): (root / each).read_text() for each in names if not _LEFT_OUT & {*each.parts}}
