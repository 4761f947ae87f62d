"""The shape of the project that no linter checks: short files, said purposes, light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path

import msgspec
import pytest

from k8s import snapshot
from k8s.gpus import readings
from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import parts, spec
from tests import ROOT
from tests.support.terminal import Terminal
from tui.commands import COMMANDS
from tui.screens import VIEWS, key_table

PACKAGES = ("tui", "k8s", "trainer", "themes")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def test_the_top_level_holds_only_the_expected_entries() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {path.split("/")[0] for path in listed.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        *(*PACKAGES, "tests"),
        *("pyproject.toml", "README.md", "LICENSE", "Makefile"),
    }


IN_TMPDIR = "what the user's program leaves in the user's TMPDIR"
OF_THE_POD = "files in the pod's own TMPDIR and HOME, below the sandbox's private folder"
STARTED = {
    "tui/runs/tensorboard.py": "port and path of TensorBoard in .tensorboard-info: in a private TMPDIR",
    "tui/terminal/clipboard.py": "nothing",
    "tui/terminal/pod_shell.py": IN_TMPDIR,
    "tui/commands/edit.py": "the copy that kubectl edits, of mode 0600 in the user's TMPDIR",
    "tui/commands/record.py": "nothing beyond what the recorder itself writes",
    "tui/commands/completer.py": "the cache of names, in the private state folder",
    "tui/terminal/hooks.py": IN_TMPDIR,
    "tui/verbs/plugins.py": IN_TMPDIR,
    "k8s/client/auth/exec_plugin.py": "what the plugin caches in the user's HOME",
    "k8s/reasons/stacks/probe.py": "nothing: py-spy, in the pod",
    "k8s/sandbox/launcher.py": "the sandbox's private folder",
    "k8s/sandbox/node/processes.py": OF_THE_POD,
    "k8s/sandbox/node/shim.py": OF_THE_POD,
    "k8s/sandbox/node/programs/git_sync.py": OF_THE_POD,
    "k8s/sandbox/node/programs/mpirun.py": OF_THE_POD,
    "k8s/sandbox/node/programs/on_loopback.py": OF_THE_POD,
    "trainer/benchmark/report.py": "nothing",
    "trainer/ranks.py": "nothing",
}
"""Modules that start other programs, and what these leave in folders that others can read."""


def test_each_module_that_starts_programs_lists_their_files(trees: dict[Path, ast.Module]) -> None:
    """A program that leaves a secret in TMPDIR, XDG_RUNTIME_DIR or HOME needs a private folder there."""
    starts = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "run", "call", "check_output"}
    found = {
        path.relative_to(ROOT).as_posix()
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        if (
            node.func.value.id in ("subprocess", "asyncio")
            and node.func.attr in starts
            and ast.unparse(node.func) != "asyncio.run"
        )
        or (node.func.value.id == "os" and node.func.attr in ("fork", "posix_spawn", "system"))
    }
    assert found == STARTED.keys()


def test_errors_are_stored_without_their_frames(trees: dict[Path, ast.Module]) -> None:
    """A stored error keeps what the frames below had read; it and a frame with it in a variable, each other.

    `without_frames` drops them. A function that raises an error from a variable deletes the variable.
    """
    found = set()
    for path, tree in trees.items():
        # A rank ends with its error; the sandbox is a process of its own.
        if path.is_relative_to(ROOT / "trainer") or path.is_relative_to(ROOT / "k8s" / "sandbox"):
            continue
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            nodes = [each for each in ast.walk(function) if isinstance(each, STATEMENTS)]
            handlers = [each for each in nodes if isinstance(each, ast.ExceptHandler)]
            caught = [
                (node, each.name)
                for each in handlers
                for node in ast.walk(each)
                if isinstance(node, STATEMENTS)
            ]
            deletes = [each for each in nodes if isinstance(each, ast.Delete)]
            deleted = {ast.unparse(name) for each in deletes for name in each.targets}
            stored = [
                node
                for node, name in caught
                if name in values_stored_by(node) and ast.unparse(node).split(" = ")[0] not in deleted
            ]
            stored += [
                each
                for each in nodes
                if isinstance(each, ast.Raise)
                and isinstance(each.exc, ast.Name)
                and each.exc.id.islower()
                and each.exc.id not in {*deleted, *(handler.name for handler in handlers)}
            ]
            found |= {f"{path.relative_to(ROOT)}:{each.lineno}: {ast.unparse(each)}" for each in stored}
    assert found == set()


STATEMENTS = (ast.stmt, ast.expr, ast.ExceptHandler)


def values_stored_by(node: ast.AST) -> set[str]:
    """Return the variables that a statement assigns, returns or appends as they are."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.Return):
        values = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        values = [*node.args] if node.func.attr in ("append", "put_nowait", "set_exception", "add") else []
    else:
        return set()
    names = set()
    while values:
        match values.pop():
            case ast.IfExp(body=first, orelse=second):
                values += [first, second]
            case ast.Tuple(elts=several) | ast.BoolOp(values=several):
                values += several
            case ast.Name(id=name):
                names.add(name)
    return names


def lines_in(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_the_project_stays_within_its_budgets(trees: dict[Path, ast.Module]) -> None:
    """Lower a limit in the change that deletes. A change that raises one changes nothing else.

    Lines follow surface, so what users can press, type and fill in counts too.
    """
    trainer = [
        path for path in (ROOT / "trainer").rglob("*.py") if not {"tfevents", "benchmark"} & {*path.parts}
    ]
    measured = {
        "source lines": (lines_in(SOURCES), 94_700),
        "source files": (len(SOURCES), 467),
        "lines of the sandbox": (lines_in((ROOT / "k8s" / "sandbox").rglob("*.py")), 10_040),
        "lines of the trainers": (lines_in(trainer), 3_950),
        "lines of tests": (lines_in((ROOT / "tests").rglob("*.py")), 83_800),
        "words of README": (len((ROOT / "README.md").read_text().split()), 2_000),
        "keys": (sum(len(keys) for _, keys in key_table().sections), 191),
        "commands": (len(COMMANDS), 31),
        "views": (len(VIEWS), 15),
        "fields of a job": (len(fields(spec.JobSpec)), 66),
        "types of list": (len(types_of_list(trees)), 9),
        "small modules for one neighbour": (len(modules_for_one_neighbour(trees)), 2),
        **{
            f"top-level entries of {package}": (len(top_level_of(ROOT / package)), limit)
            for package, limit in (("tui", 13), ("k8s", 12))
        },
    }
    assert {name: found for name, (found, limit) in measured.items() if found > limit} == {}


def types_of_list(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the classes below `ListView` that no other extends: each draws rows in its own way."""
    classes = [each for tree in trees.values() for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    bases = {each.name: {ast.unparse(base).split(".")[-1] for base in each.bases} for each in classes}
    found, extended = {"ListView"}, set[str]().union(*bases.values())
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return sorted(found - extended)


def top_level_of(package: Path) -> list[str]:
    return [
        path.name
        for path in package.iterdir()
        if (path.suffix == ".py" and path.name != "__init__.py") or any(path.glob("**/*.py"))
    ]


def modules_for_one_neighbour(trees: dict[Path, ast.Module]) -> list[str]:
    """Return modules below 100 lines that one module of the same folder imports and no other.

    Commands and actions are found by name. An `__init__.py` is no neighbour: it gives its modules a door.
    """
    importers: dict[str, set[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers.setdefault(name, set()).add(path)
    found = []
    for path in SOURCES:
        place = path.relative_to(ROOT)
        using = importers.get(".".join(place.with_suffix("").parts), set())
        is_by_name = place.parts[:2] in (("tui", "commands"), ("tui", "verbs"))
        if len(using) == 1 and not is_by_name and lines_in([path]) < 100:
            (importer,) = using
            if importer.parent == path.parent and importer.name != "__init__.py":
                found.append(place.as_posix())
    return found


def test_no_source_file_is_longer_than_600_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_every_module_has_a_docstring(trees: dict[Path, ast.Module]) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path, tree in trees.items()
        if tree.body and not ast.get_docstring(tree)
    ]
    assert silent == []


@pytest.mark.parametrize("kind", CREATABLE, ids=lambda kind: kind.title)
def test_every_kind_has_a_golden_manifest_and_tests(kind: object) -> None:
    title = type(kind).title.lower().replace(" ", "-")  # type: ignore[attr-defined]
    assert (ROOT / "tests" / "golden" / "kinds" / f"{title}.yaml").is_file()
    imported = f"from {type(kind).__module__} import {type(kind).__name__}\n"
    assert any(imported in path.read_text() for path in (ROOT / "tests/k8s/kinds").glob("test_*.py"))


@pytest.mark.parametrize(
    "module", [snapshot, spec, parts, readings], ids=["snapshot", "spec", "parts", "readings"]
)
def test_frozen_values_are_frozen_and_small(module: object) -> None:
    types = [found for found in vars(module).values() if isinstance(found, type)]
    classes = [found for found in types if is_dataclass(found) or issubclass(found, msgspec.Struct)]
    assert classes
    for found in classes:
        params = "__dataclass_params__" if is_dataclass(found) else "__struct_config__"
        assert getattr(found, params).frozen and not found.__dictoffset__, found


def imported_by(module: str) -> set[str]:
    """Return the top-level names of all modules that importing one brings in, in a fresh interpreter."""
    code = (
        f"import sys, {module}; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_command_starts_without_slow_imports() -> None:
    slow = {"torch", "torchvision", "tensorboard", "kubernetes", "textual", "rich", "numpy", "plotext"}
    assert imported_by("tui.__main__") & slow == set()


@pytest.mark.parametrize(
    "module",
    [
        "k8s.client.client",
        "k8s.cluster.cluster_mirror",
        "k8s.cluster.joiner",
        "k8s.jobs.create",
        "k8s.jobs.pod_files",
        "k8s.kinds",
    ],
)
def test_cluster_modules_import_neither_ui_nor_training_packages(module: str) -> None:
    assert imported_by(module) & {"textual", "rich", "torch", "kubernetes"} == set()


def test_listing_commands_import_no_job_creation_or_log_modules() -> None:
    slow = "aiohttp k8s.kinds.job_spec.spec k8s.kinds.job_spec.field_types k8s.kinds.pod_template"
    slow += " k8s.logs k8s.models.dra k8s.reasons k8s.text.yaml_writer plotext"
    for module, most in (("list", 75), ("get", 81), ("top", 84), ("curves", 91)):
        words = [sys.executable, "-P", "-c", f"import sys, tui.commands.{module}; print(*sys.modules)"]
        names = subprocess.check_output(words, text=True, cwd=ROOT).split()
        assert not {*slow.split()} & {*names}, module
        assert sum(name.partition(".")[0] in PACKAGES for name in names) <= most, "modules of ours"


NOT_FOR_THE_FIRST_FRAME = (
    *("aiohttp", "kubernetes", "yaml"),
    *("k8s.client.auth.cluster_config", "k8s.client.client", "k8s.kinds", "k8s.models", "k8s.status.job"),
    *(
        "tui.settings.config_file",
        "tui.runs.curve_feed",
        "tui.settings.keys_file",
        "k8s.cluster.cluster_mirror",
        "tui.screens.job.job",
    ),
)
"""Modules that need a cluster or a file of the user's; each of them would delay the first frame."""


@pytest.mark.parametrize("words", [[], ["--sandbox"]], ids=["kubeconfig", "sandbox"])
def test_the_console_opens_before_cluster_modules_are_imported(words: list[str], tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("")
    code = (
        "import sys\n"
        "from tui.__main__ import find_intruder\n"
        "from tui.commands.support.parser import make_parser, options_of\n"
        "options = options_of(make_parser().parse_args(sys.argv[1:]))\n"
        "from tui.commands.console import prepare\n"
        "options = prepare(options)\n"
        "from tui.app import Console\n"
        "Console(options)\n"
        f"print('loaded', [name for name in {NOT_FOR_THE_FIRST_FRAME} if name in sys.modules], 'done')"
    )
    env = {"HOME": str(tmp_path), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    with Terminal([sys.executable, "-P", "-c", code, *words], env=env) as terminal:
        assert "loaded [] done" in terminal.wait_for("done")


@pytest.mark.parametrize(
    "user",
    [
        "token: t",
        "client-certificate-data: eA==, client-key-data: eA==",
        "username: li, password: x",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true'}",
    ],
)
def test_a_cluster_is_reached_without_the_kubernetes_package(user: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "current-context: lab\n"
        "contexts: [{name: lab, context: {cluster: lab, user: li}}]\n"
        "clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        f"users: [{{name: li, user: {{{user}}}}}]\n"
    )
    code = (
        "import asyncio, sys\n"
        "from k8s.client.auth.cluster_config import load\n"
        "from k8s.text.errors import NoCluster\n"
        "try:\n"
        "    print(asyncio.run(load(sys.argv[1])).host)\n"
        "except NoCluster as error:\n"
        "    print(error.what)\n"
        "print('kubernetes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(kubeconfig)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    reached = "Could not log in to the cluster." if "exec" in user else "https://127.0.0.1:1"
    assert done.stdout.splitlines() == [reached, "False"]


ROOM_LIMIT = 14
"""Modules of a room, its `__init__` aside."""
LONG_ROOMS = {"tui/commands": "one file a command, each like the other"}
"""Rooms that may hold more, and why."""
SHARED_CLASS_NAMES: dict[str, str] = {}
"""Class names that may stand twice, five at most, and why: the same idea in the same sense."""


def test_no_package_exceeds_the_module_limit() -> None:
    rooms = Counter(
        path.parent.relative_to(ROOT).as_posix() for path in SOURCES if path.name != "__init__.py"
    )
    crowded = {room: modules for room, modules in rooms.items() if modules > ROOM_LIMIT}
    assert {room: modules for room, modules in crowded.items() if room not in LONG_ROOMS} == {}


def test_no_class_name_is_defined_twice(trees: dict[Path, ast.Module]) -> None:
    defined: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for found in tree.body:
            if isinstance(found, ast.ClassDef):
                defined.setdefault(found.name, []).append(path.relative_to(ROOT).as_posix())
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SHARED_CLASS_NAMES} == {}
    assert len(SHARED_CLASS_NAMES) <= 5


def test_every_package_docstring_has_at_least_two_lines(trees: dict[Path, ast.Module]) -> None:
    for path, tree in trees.items():
        if path.name == "__init__.py" and path.parent.parent != ROOT:
            words = ast.get_docstring(tree) or ""
            assert len([line for line in words.splitlines() if line]) >= 2, path.relative_to(ROOT)
