"""Options of the console and all commands, and the locations of their files."""

from __future__ import annotations

import getpass
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from platformdirs import PlatformDirs

from k8s.client.auth.overrides import ConfigOverrides

_DIRS = PlatformDirs("gpuconsole", appauthor=False)

# Finished jobs are shown for so long, unless config.yaml says otherwise.
FINISHED_DAYS = 7.0


class NoticeEvent(StrEnum):
    """Event of a job that the console reports, by its word in config.yaml."""

    FAILED = "failed"
    SILENT = "silent"
    NAN = "nan"
    ENDED = "ended"
    RESTARTED = "restarted"
    STARTED = "started"

    @property
    def is_failure(self) -> bool:
        """Return True if it needs attention."""
        return self in (NoticeEvent.FAILED, NoticeEvent.SILENT, NoticeEvent.NAN)


NoticeScope = Literal["mine", "all", "off"]
SignalScope = Literal["failures", "all", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyOptions:
    """Reports of what happens to jobs: the entry `notify` of config.yaml."""

    events: tuple[NoticeEvent, ...] = tuple(NoticeEvent)
    toast: NoticeScope = "mine"
    counter: NoticeScope = "mine"
    terminal: SignalScope = "failures"
    """Notification of the terminal, for one's own jobs."""
    bell: SignalScope = "failures"
    exec: tuple[str, ...] = ()
    """Command for each notice of one's own jobs; empty for none."""

    @property
    def is_for_everyone(self) -> bool:
        """Return True if other users' jobs are reported too."""
        return "all" in (self.toast, self.counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Options of the console and of every one-shot command."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty for kubectl's default."""
    context: str = ""
    """Context in the kubeconfig; empty for its current one."""
    namespace: str = ""
    """Empty for the namespace of the context."""
    overrides: ConfigOverrides = field(default_factory=ConfigOverrides)
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
    notify: NotifyOptions = field(default_factory=NotifyOptions)
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
    def causes_file(self) -> Path:
        """Return the path of causes.yaml."""
        return self.config_folder / "causes.yaml"

    @property
    def plugins_file(self) -> Path:
        """Return the path of plugins.yaml."""
        return self.config_folder / "plugins.yaml"

    @property
    def log_file(self) -> Path:
        """Return the path of the console's log."""
        return self.state_folder / "gpuconsole.log"

    @property
    def sandbox_folder(self) -> Path:
        """Return the folder of the sandbox's objects, volumes and logs."""
        return self.data_folder / "sandbox"


def program() -> str:
    """Return the name by which the program was called; as a plugin of kubectl, `kubectl gpuconsole`."""
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-gpuconsole")
    return "kubectl gpuconsole" if is_plugin else "gpuconsole"


def local_user() -> str:
    """Return the local user's name; empty if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
