"""What the user asked for when starting the console, where its files lie, and who is asking."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("gpuconsole", appauthor=False)

FINISHED_DAYS = 7.0
"""How long jobs are shown that have finished, unless config.yaml says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What holds for the console and for every one-shot command."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty for the one that kubectl would take."""
    context: str = ""
    """Context in the kubeconfig; empty for its current one."""
    namespace: str = ""
    """Whose jobs are meant; empty for the namespace of the context."""
    is_all_namespaces: bool = False
    is_sandbox: bool = False
    """Talk to the single-machine cluster, and start it if need be."""
    is_read_only: bool = False
    """Change nothing on the cluster."""
    theme: str = ""
    """The palette asked for now; empty for none."""
    config_theme: str = ""
    """The palette that config.yaml names; empty for none."""
    kept_theme: str = ""
    """The palette that was chosen last, in the console or in config.yaml; empty for none."""
    finished_days: float = FINISHED_DAYS
    """How long the list shows jobs that have finished."""
    prometheus: str = ""
    """Service that config.yaml names, as `monitoring/prometheus-k8s:web`; empty to look for one."""
    strip_by: str = ""
    """The label of nodes by which home sums up those that it has no room for; empty for the GPUs' model."""
    has_loss: bool = True
    """Home reads the loss of running jobs, unless that is switched off there."""
    is_mono: bool = False
    """Without colours."""
    is_ascii: bool = False
    """With nothing but ASCII in what we draw ourselves."""
    config_folder: Path = field(default_factory=lambda: _DIRS.user_config_path)
    """What the user wrote."""
    state_folder: Path = field(default_factory=lambda: _DIRS.user_state_path)
    """What the console remembers: its log, drafts."""
    data_folder: Path = field(default_factory=lambda: _DIRS.user_data_path)
    """What must not get lost: the sandbox."""

    @property
    def themes_folder(self) -> Path:
        """Return where palettes of the user's own are."""
        return self.config_folder / "themes"

    @property
    def templates_folder(self) -> Path:
        """Return where manifests to start a job from are."""
        return self.config_folder / "templates"

    @property
    def config_file(self) -> Path:
        """Return where the user's own settings are."""
        return self.config_folder / "config.yaml"

    @property
    def keys_file(self) -> Path:
        """Return where the user's own keys are."""
        return self.config_folder / "keys.yaml"

    @property
    def log_file(self) -> Path:
        """Return where the console writes what happened to itself."""
        return self.state_folder / "gpuconsole.log"

    @property
    def sandbox_folder(self) -> Path:
        """Return where the sandbox keeps its objects, volumes and logs."""
        return self.data_folder / "sandbox"


def login_name() -> str:
    """Return the login's name; empty where this machine does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
