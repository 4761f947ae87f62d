"""What comes along with the form's job: its folder and files, read beside the typing, and its credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from textual.app import App

from k8s.job_spec import NO_FILES, JobFiles, JobSpec
from k8s.jobs.companions import problems_with_files, with_files
from k8s.jobs.create import JobRejected
from k8s.kinds import Manifest
from k8s.kinds.pod_code import PASSWORD, USERNAME, git_secret_name, without_login
from tui.jobs.new_job.form_spec import FormResult
from tui.jobs.new_job.job_files import load_job_files, takes_git_login
from tui.jobs.new_job.manifest_companions import documents_beside
from tui.screens.dialogs.ask_login import AskLoginScreen, Login
from tui.screens.documents.form_files import FileProblem

READ_HERE = ("sync_source", "config_files")
"""Fields of `JobSpec`, and of the form, that name what lies on this machine."""
_Wanted = tuple[object, ...]


class FormCompanions:
    """Knows what was read for the job as it is; of another job's files nothing is shown."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._wanted: _Wanted = ()
        self._files = NO_FILES
        self._problems: Mapping[str, str] = {}
        self._login: Login | None = None

    @property
    def user(self) -> str:
        """Who fetches the repository, if that was told."""
        return self._login.user if self._login is not None else ""

    def set_login(self, login: Login) -> None:
        """Take user and password, for as long as the form is open; they are in no draft or template."""
        self._login = login if login.password else None

    def login(self, spec: JobSpec) -> Mapping[str, str]:
        """Return what the Secret for the repository is made of; nothing where the job needs none."""
        if self._login is None or spec.git_secret or not takes_git_login(spec):
            return {}
        return {USERNAME: self._login.user, PASSWORD: self._login.password}

    async def read(self, spec: JobSpec) -> None:
        """Read what the job needs of this machine, in a thread, unless that is read."""
        wanted = _wanted(spec)
        if not wanted or wanted == self._wanted:
            return
        files, problems = NO_FILES, {}
        try:
            files = await load_job_files(replace(spec, trainer=""))
        except JobRejected as error:
            problems = dict(error.causes)
        self._wanted, self._files, self._problems = wanted, files, problems

    def files(self, spec: JobSpec) -> JobFiles:
        """Return what was read for a job; nothing where that was another one."""
        files = self._files if self._is_read(spec) else NO_FILES
        return replace(files, git_login=self.login(spec))

    def problems(self, spec: JobSpec) -> Mapping[str, str]:
        """Return by field of `JobSpec` why something cannot come along, as far as it was read."""
        if not _wanted(spec) or not self._is_read(spec):
            return {}
        if self._problems:
            return self._problems
        found = problems_with_files(spec, self.files(spec))
        return {name: sentence for name, sentence in found.items() if name in READ_HERE}

    def remarks(self, spec: JobSpec) -> list[str]:
        """Return what is to be said of what comes along."""
        if not self.login(spec):
            return []
        return [f"git's user {self.user} and the password become Secret {git_secret_name(spec.name)}"]

    def documents(self, result: FormResult) -> tuple[Manifest, str]:
        """Return the job's manifest as it will be created, and as YAML what comes along."""
        kind, spec = result.kind, result.spec
        files = self.files(spec)
        unread = "" if self._is_read(spec) else "not read yet"
        if self._problems and not unread and _wanted(spec):
            unread = "could not be read"
        return kind.manifest(with_files(spec, files)), documents_beside(kind, spec, files, unread)

    def _is_read(self, spec: JobSpec) -> bool:
        return _wanted(spec) in ((), self._wanted)


async def ask_git_login(app: App[object], companions: FormCompanions, spec: JobSpec) -> str:
    """Ask for user and password of a job's repository; return in a sentence what becomes of them.

    Raises:
        FileProblem: The job fetches nothing with a password.
    """
    if not takes_git_login(spec):
        raise FileProblem("Only code from git over https takes a user and a password: choose git as Code.")
    if spec.git_secret:
        raise FileProblem(f"Secret {spec.git_secret} has them already; empty Git secret to type them here.")
    details = (
        f"For {without_login(spec.sync_source)}. They become Secret {git_secret_name(spec.name)}, which goes "
        "with the job; no draft or template has them. Empty both to forget them."
    )
    login = await app.push_screen_wait(AskLoginScreen("User and password for git?", details, companions.user))
    if login is None:
        return ""
    companions.set_login(login)
    if not login.password:
        return "User and password are forgotten."
    return f"User and password become Secret {git_secret_name(spec.name)} when the job is created."


def _wanted(spec: JobSpec) -> _Wanted:
    """Return what has to be read; empty where nothing has."""
    folder = spec.sync_source if spec.sync_mode == "folder" else ""
    return (folder, spec.config_files) if folder or spec.config_files else ()
