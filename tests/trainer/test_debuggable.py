"""The file that lets `diagnose` ask a process, as a `sitecustomize` and in the trainers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.job_spec import JobSpec
from trainer import debuggable
from tui.jobs.new_job.job_files import read_job_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="arms nothing elsewhere")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    content = read_job_files(JobSpec(debuggable=True)).debuggable
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_bytes(content)
    return tmp_path / "site"


def run(code: str, *paths: Path, **env: str) -> str:
    """Run Python with these folders on its path, and return what it printed."""
    everything = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))} | env
    words = [sys.executable, "-c", code]
    return subprocess.run(
        words, env=everything, capture_output=True, text=True, check=True, timeout=100
    ).stdout


def test_the_sitecustomize_imports_no_torch_and_runs_the_one_of_the_image(site: Path, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "sitecustomize.py").write_text("print('of the image')")
    code = "import sys, sitecustomize; print('torch' in sys.modules, sitecustomize.__file__)"
    assert run(code, site, tmp_path / "image").splitlines() == [
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
    assert run(code, site) == "0 [0]\n"


def test_no_signal_handler_is_installed_when_the_variable_disables_it(site: Path) -> None:
    killed = f"import os; os.kill(os.getpid(), {debuggable.SIGNAL})"
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run(killed, site, GPUCONSOLE_DEBUGGABLE="0")
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
