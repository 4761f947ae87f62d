"""User and password of a private repository: typed unseen, and kept in a Secret of the job alone."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.job_spec import JobSpec
from k8s.kinds.pod_code import PASSWORD, USERNAME, login_in
from tui.commands.support.output import WrongUsage, ask_password, is_interactive
from tui.jobs.new_job.job_files import takes_git_login


def ask_git_login(spec: JobSpec, user: str) -> Mapping[str, str]:
    """Ask for the password of the repository; return what the Secret is made of, nothing without a user.

    Raises:
        WrongUsage: The job needs none, has one, or there is nobody to be asked.
    """
    if not user:
        return {}
    if not takes_git_login(spec):
        raise WrongUsage("--git-user: only code from git over https takes a user (--sync-mode git).")
    if spec.git_secret or login_in(spec):
        raise WrongUsage("--git-user: the repository has its credentials already; name them once.")
    if not is_interactive():
        raise WrongUsage("--git-user asks for a password, and there is no terminal: use --git-secret NAME.")
    password = ask_password(f"Password or token of {user} for {spec.sync_source}: ")
    if not password:
        raise WrongUsage("--git-user: no password was typed.")
    return {USERNAME: user, PASSWORD: password}
