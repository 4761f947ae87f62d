"""Files that travel: the trainers alone on PYTHONPATH, and the file that lets `diagnose` ask a process."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from k8s.kinds.job_spec import JobSpec
from tests import ROOT
from tests.trainer.jobs import SMALL
from trainer import debuggable
from tui.draft.fields import DEFAULT_IMAGE
from tui.draft.job_files import read_job_files, trainer_files

LARGEST_CONFIG_MAP = 1 << 20  # bytes that a ConfigMap may hold. Source: Kubernetes' documentation.
SOURCES = sorted((ROOT / "trainer").rglob("*.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing of ours but the trainers; what an image with torch may lack is out of reach."""
    shutil.copytree(ROOT / "trainer", tmp_path / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("tui", "k8s", "themes", "tests", "google_crc32c", "tensorboard", "torchvision"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('{package} does not travel')")
    return tmp_path


def run(folder: Path, *words: str) -> list[str]:
    """Run Python with only the folder's packages, and return the lines it printed."""
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return printed_by("-P", *words, env=env, cwd=folder).splitlines()


def printed_by(*words: str, env: Mapping[str, str], cwd: Path | None = None) -> str:
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=True, timeout=200
    ).stdout


def test_the_trainer_files_take_less_than_a_quarter_of_a_config_map() -> None:
    files = {path for path in (ROOT / "trainer").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files == {*SOURCES, ROOT / "trainer" / "Dockerfile"}, "only Python travels"
    travelling = trainer_files()
    assert sorted(travelling) == [path.relative_to(ROOT).as_posix() for path in SOURCES]
    assert sum(len(content) for content in travelling.values()) < LARGEST_CONFIG_MAP / 4


def test_the_shipped_trainer_code_keeps_its_line_numbers_without_documentation() -> None:
    def code(source: str) -> list[tuple[str, int]]:
        """List what is not documentation, each statement with its line."""
        kinds = ast.Assign | ast.Call | ast.Return | ast.If | ast.For | ast.Raise
        return [
            (ast.dump(node), node.lineno)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, kinds)
            and not any(isinstance(each, ast.FunctionDef) for each in ast.walk(node))
        ]

    for path in SOURCES:
        source, sent = path.read_text(), trainer_files()[path.relative_to(ROOT).as_posix()].decode()
        assert len(sent.splitlines()) == len(source.splitlines())
        assert [line for line in sent.splitlines() if line.lstrip().startswith("#")] == []
        assert code(sent) == code(source)


def test_the_trainer_files_parse_as_python_3_10() -> None:
    for path in SOURCES:
        ast.parse(path.read_text(), feature_version=(3, 10))


def test_modules_that_start_a_job_need_no_third_party_package(folder: Path) -> None:
    modules = "trainer.catalogue, trainer.ranks, trainer.tfevents"
    assert run(folder, "-S", "-c", f"import {modules}; print(trainer.__file__)") == [
        str(folder / "trainer" / "__init__.py")
    ]


@pytest.mark.slow
def test_the_trainers_run_from_their_files_alone(folder: Path) -> None:
    pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")
    mpi = ["--model", "tiny", "--num-iters", "1", "--num-warmup-batches", "0", "--log-dir", "figures"]
    code = (
        "import os, runpy, sys\n"
        "os._exit = sys.exit\n"
        f"for name, words in (('train_mpi', {mpi}), ('train_ddp', {[*SMALL, '--epochs', '1']})):\n"
        "    sys.argv[1:] = words\n"
        "    try:\n        runpy.run_module(f'trainer.{name}', run_name='__main__')\n"
        "    except SystemExit as ended:\n        print(name, ended.code)"
    )
    lines = run(folder, "-c", code)
    at = lines.index("train_mpi 0")
    assert lines[at - 1].startswith("Total img/sec on 1 ")
    assert lines[-2].startswith("done: val_accuracy ") and lines[-1] == "train_ddp 0"
    assert {path.name for path in folder.iterdir()} >= {"figures", "logs", "checkpoints"}


def test_the_image_with_the_trainers_copies_them_to_where_python_finds_them() -> None:
    lines = (ROOT / "trainer" / "Dockerfile").read_text().splitlines()
    assert f"FROM {DEFAULT_IMAGE}" in lines
    (copied,) = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert (ROOT / copied[0] / "train_ddp.py").exists()
    (environment,) = [line for line in lines if line.startswith("ENV ")]
    assert f"PYTHONPATH={copied[1].removesuffix('/trainer')}" in environment.split()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="arms nothing elsewhere")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    content = read_job_files(JobSpec(debuggable=True)).debuggable
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_bytes(content)
    return tmp_path / "site"


def run_python(code: str, *paths: Path, **env: str) -> str:
    return printed_by("-c", code, env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))} | env)


def test_the_sitecustomize_imports_no_torch_and_runs_the_one_of_the_image(site: Path, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "sitecustomize.py").write_text("print('of the image')")
    code = "import sys, sitecustomize; print('torch' in sys.modules, sitecustomize.__file__)"
    assert run_python(code, site, tmp_path / "image").splitlines() == [
        "of the image",
        f"False {tmp_path / 'image' / 'sitecustomize.py'}",
    ]


def test_a_forked_child_writes_its_stacks_to_a_file_of_its_own(site: Path) -> None:
    code = (
        "import os\n"
        "def size(): return [os.stat(f'/proc/self/fd/{n}').st_size for n in os.listdir('/proc/self/fd')"
        " if os.path.lexists(f'/proc/self/fd/{n}')"
        " and 'gpuconsole-stacks' in os.readlink(f'/proc/self/fd/{n}')]\n"
        "if os.fork() == 0:\n"
        f"    os.kill(os.getpid(), {debuggable.SIGNAL})\n"
        "    os._exit(0 if size()[0] > 0 else 1)\n"
        "print(os.wait()[1], size())"
    )
    assert run_python(code, site) == "0 [0]\n"


def test_no_signal_handler_is_installed_when_the_variable_disables_it(site: Path) -> None:
    killed = f"import os; os.kill(os.getpid(), {debuggable.SIGNAL})"
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run_python(killed, site, GPUCONSOLE_DEBUGGABLE="0")
    assert ended.value.returncode == -debuggable.SIGNAL


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_POD_UID", "uid")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = Path(debuggable.private_folder())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert debuggable.private_folder() == str(folder)
    folder.chmod(0o750)
    with pytest.raises(OSError, match="not a private folder"):
        debuggable.private_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a private folder"):
        debuggable.private_folder()
