"""Options of the console and all commands, and the locations of their files."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("gpuconsole", appauthor=False)

# Finished jobs are shown for so long, unless config.yaml says otherwise.
FINISHED_DAYS = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Options of the console and of every one-shot command."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty for kubectl's default."""
    context: str = ""
    """Context in the kubeconfig; empty for its current one."""
    namespace: str = ""
    """Empty for the namespace of the context."""
    is_all_namespaces: bool = False
    is_sandbox: bool = False
    """Connect to the sandbox, and start it if necessary."""
    is_read_only: bool = False
    theme: str = ""
    """Theme requested now; empty for none."""
    config_theme: str = ""
    """Theme named in config.yaml; empty for none."""
    kept_theme: str = ""
    """Theme chosen last, in the console or in config.yaml; empty for none."""
    finished_days: float = FINISHED_DAYS
    prometheus: str = ""
    """Service named in config.yaml, as `monitoring/prometheus-k8s:web`; empty to find one."""
    strip_by: str = ""
    """Node label by which home groups nodes that do not all fit; empty for the GPU model."""
    has_loss: bool = True
    """Home reads the loss of running jobs."""
    config_problems: tuple[str, ...] = ()
    """Rejected entries of config.yaml."""
    is_mono: bool = False
    is_ascii: bool = False
    """Draw with ASCII only."""
    config_folder: Path = field(default_factory=lambda: _DIRS.user_config_path)
    state_folder: Path = field(default_factory=lambda: _DIRS.user_state_path)
    """Holds the log and drafts."""
    data_folder: Path = field(default_factory=lambda: _DIRS.user_data_path)
    """Holds the sandbox."""

    @property
    def themes_folder(self) -> Path:
        """Return the folder of the user's themes."""
        return self.config_folder / "themes"

    @property
    def templates_folder(self) -> Path:
        """Return the folder of the user's job templates."""
        return self.config_folder / "templates"

    @property
    def config_file(self) -> Path:
        """Return the path of config.yaml."""
        return self.config_folder / "config.yaml"

    @property
    def keys_file(self) -> Path:
        """Return the path of keys.yaml."""
        return self.config_folder / "keys.yaml"

    @property
    def log_file(self) -> Path:
        """Return the path of the console's log."""
        return self.state_folder / "gpuconsole.log"

    @property
    def sandbox_folder(self) -> Path:
        """Return the folder of the sandbox's objects, volumes and logs."""
        return self.data_folder / "sandbox"


def local_user() -> str:
    """Return the local user's name; empty if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
