"""Options of the console and all commands, and the locations of their files."""

from __future__ import annotations

import getpass
import os
import shlex
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from platformdirs import PlatformDirs

from k8s.client.auth.kubeconfig import ConfigOverrides
from tui import program

_DIRS = PlatformDirs("gpuconsole", appauthor=False)

# Finished jobs are shown for so long, unless config.yaml says otherwise.
FINISHED_DAYS = 7.0


class NoticeEvent(StrEnum):
    """Event of a job that the console reports, by its word in config.yaml."""

    FAILED = "failed"
    SILENT = "silent"
    NAN = "nan"
    DIVERGED = "diverged"
    SLOW = "slow"
    PLATEAU = "plateau"
    ENDED = "ended"
    RESTARTED = "restarted"
    STARTED = "started"

    @property
    def is_failure(self) -> bool:
        """Return True if it needs attention."""
        return self in (NoticeEvent.FAILED, NoticeEvent.SILENT, NoticeEvent.NAN, NoticeEvent.DIVERGED)


class AlertRule(StrEnum):
    """Rule about the curves of running jobs, by its word in config.yaml."""

    NAN = "nan"
    DIVERGED = "diverged"
    SLOW = "slow"
    PLATEAU = "plateau"


# Those that matter of an ended job.
RULES_AT_END = (AlertRule.NAN, AlertRule.DIVERGED)
# A loss that no longer improves is usual at the end of a run.
DEFAULT_ALERTS = (AlertRule.NAN, AlertRule.DIVERGED, AlertRule.SLOW)
NoticeScope = Literal["mine", "all", "off"]
SignalScope = Literal["failures", "all", "off"]


class NotifyOptions(msgspec.Struct, frozen=True, kw_only=True):
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


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the journal: the entry `history` of config.yaml."""

    size_mib: float = 200.0
    days: float = 30.0

    @property
    def is_off(self) -> bool:
        """Return True if nothing is kept when the program exits."""
        return not (self.size_mib and self.days)


class ContextSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of some contexts: one entry of `contexts` of config.yaml."""

    pattern: str
    """Of the names of the contexts, for `fnmatch`."""
    read_only: bool | None = None
    """None if it is not set, so that a later entry may set it."""
    namespace: str = ""
    theme: str = ""


class OwnColumn(NamedTuple):
    """Column of a list that the user defines in config.yaml."""

    title: str
    path: str
    """JSONPath in an object's metadata, or in its fields in JSON: `.metadata.labels.team`, `.user`."""


class Alias(NamedTuple):
    """A `:` command of the user's."""

    command: str
    line: int


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the console and of every one-shot command."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty for kubectl's default."""
    context: str = ""
    """Context in the kubeconfig; empty for its current one."""
    namespace: str = ""
    """Empty for the namespace of the context."""
    overrides: ConfigOverrides = msgspec.field(default_factory=ConfigOverrides)
    is_all_namespaces: bool = False
    is_sandbox: bool = False
    """Connect to the sandbox, and start it if necessary."""
    is_read_only: bool = False
    theme: str = ""
    config_theme: str = ""
    kept_theme: str = ""
    """Theme chosen last, in the console or in config.yaml; empty for none."""
    finished_days: float = FINISHED_DAYS
    prometheus: str = ""
    """Service named in config.yaml, as `monitoring/prometheus-k8s:web`; empty to find one."""
    log_store: str = ""
    """Loki or VictoriaLogs as config.yaml names it: a service or a URL; empty to find one."""
    strip_by: str = ""
    """Node label by which home groups nodes that do not all fit; empty for the GPU model."""
    has_loss: bool = True
    """Home reads the loss of running jobs."""
    alerts: tuple[AlertRule, ...] = DEFAULT_ALERTS
    notify: NotifyOptions = msgspec.field(default_factory=NotifyOptions)
    history: HistoryOptions = msgspec.field(default_factory=HistoryOptions)
    aliases: Mapping[str, Alias] = msgspec.field(default_factory=dict)
    columns: Mapping[str, tuple[str | OwnColumn, ...]] = msgspec.field(default_factory=dict)
    """Columns by list: keys of its own, and the user's."""
    contexts: tuple[ContextSettings, ...] = ()
    is_read_only_here: bool = False
    """`is_read_only` comes from `contexts` alone."""
    context_theme: str = ""
    """Theme of this context in config.yaml; empty for none."""
    is_theme_fixed: bool = False
    """The theme was requested now, or the terminal has no other choice."""
    config_problems: tuple[str, ...] = ()
    notice: str = ""
    """Shown once the console is connected."""
    verbosity: int = 0
    """Detail of the log: 0 warnings, 1 requests, 2 everything."""
    is_mono: bool = False
    is_ascii: bool = False
    config_folder: Path = msgspec.field(default_factory=lambda: _DIRS.user_config_path)
    state_folder: Path = msgspec.field(default_factory=lambda: _DIRS.user_state_path)
    """Holds the log and drafts."""
    data_folder: Path = msgspec.field(default_factory=lambda: _DIRS.user_data_path)

    def in_context(self, name: str) -> ConsoleOptions:
        """Return the options for a context: its settings of config.yaml, unless a flag says otherwise."""
        found = [each for each in self.contexts if fnmatchcase(name, each.pattern)]
        settings = [each.read_only for each in found if each.read_only is not None]
        is_by_flag = self.is_read_only and not self.is_read_only_here
        is_here = not is_by_flag and next(iter(settings), False)
        return replace(
            self,
            is_read_only=is_by_flag or is_here,
            is_read_only_here=is_here,
            namespace=self.namespace or next((each.namespace for each in found if each.namespace), ""),
            context_theme=next((each.theme for each in found if each.theme), ""),
        )

    @property
    def has_cluster(self) -> bool:
        """True if a cluster is named, or kubectl would find one."""
        from k8s.client.auth.kubeconfig import kubeconfig_files

        is_named = self.kubeconfig or self.overrides.server
        return bool(is_named or kubeconfig_files() or "KUBERNETES_SERVICE_HOST" in os.environ)

    @property
    def joins_sandbox(self) -> bool:
        """True if no cluster is named and there is no kubeconfig, but a sandbox that runs."""
        if self.context or self.has_cluster:
            return False
        from k8s import sandbox

        return sandbox.is_running()

    @property
    def read_only_reason(self) -> str:
        """Return the setting that disables changes."""
        return "config.yaml in this context" if self.is_read_only_here else "--readonly"

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
        """Return the path of the log of the console and the commands."""
        return self.state_folder / "gpuconsole.log"

    @property
    def sandbox_folder(self) -> Path:
        """Return the folder of the sandbox's objects, volumes and logs."""
        return self.data_folder / "sandbox"


def command_line(options: ConsoleOptions, *words: str) -> str:
    """Return a command line for the same cluster and namespace."""
    where = ["--sandbox"] if options.is_sandbox else []
    return shlex.join([*program().split(), *where, *cluster_flags(options), *words])


def cluster_flags(options: ConsoleOptions) -> list[str]:
    """Return the flags that name the cluster and namespace for kubectl; a token is left out."""
    flags = (
        ("--kubeconfig", options.kubeconfig),
        ("--context", options.context),
        ("-n", options.namespace),
        ("--server", options.overrides.server),
        ("--as", options.overrides.as_user),
        *(("--as-group", group) for group in options.overrides.as_groups),
    )
    return [word for flag, value in flags if value for word in (flag, value)]


def local_user() -> str:
    """Return the local user's name; empty if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
