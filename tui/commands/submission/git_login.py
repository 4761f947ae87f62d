"""Prompt for the user and password of a private repository; they are stored in the job's Secret only."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.job_spec import JobSpec
from k8s.kinds.pod_code import PASSWORD, USERNAME, credentials_in
from tui.commands.support.output import WrongUsage, is_interactive, prompt_password
from tui.jobs.new_job.job_files import needs_git_credentials


def prompt_git_credentials(spec: JobSpec, user: str) -> Mapping[str, str]:
    """Prompt for the repository's password; return the Secret's values, empty without a user.

    Raises:
        WrongUsage: The job needs none, has a Secret, or there is no terminal to prompt at.
    """
    if not user:
        return {}
    if not needs_git_credentials(spec):
        raise WrongUsage("--git-user: only code from git over https takes a user (--sync-mode git).")
    if spec.git_secret or credentials_in(spec):
        raise WrongUsage("--git-user: the repository already has credentials.")
    if not is_interactive():
        raise WrongUsage("--git-user asks for a password, and there is no terminal: use --git-secret NAME.")
    password = prompt_password(f"Password or token of {user} for {spec.sync_source}: ")
    if not password:
        raise WrongUsage("--git-user: no password was typed.")
    return {USERNAME: user, PASSWORD: password}
