"""What can be wished for in the view of one job, for others to do."""

from __future__ import annotations

from k8s.kinds import JobRef
from tui.screens.base.view import View


class JobActions(View):
    """A view of one job, and the wishes that its keys stand for."""

    ref: JobRef
    """The job that is shown."""

    def instance_meant(self) -> str:
        """Return the instance under the cursor."""
        raise NotImplementedError

    def pod_meant(self) -> str:
        """Return the name of the pod that is meant; nothing where it is the job itself."""
        raise NotImplementedError

    def action_logs(self) -> None:
        """Show the logs, beginning with the instance under the cursor."""
        self._go("logs", self.instance_meant())

    def action_previous_logs(self) -> None:
        """Show the logs of the run before the last restart."""
        self._go("previous", self.instance_meant())

    def action_curves(self) -> None:
        """Show the curves."""
        self._go("curves")

    def action_why(self) -> None:
        """Show why it is as it is, with all that was seen."""
        self._go("why")

    def action_yaml(self) -> None:
        """Show the pod of the instance under the cursor; from another pane, the job's object."""
        pod = self.pod_meant()
        self._go("yaml", f"pod/{pod}" if pod else "")

    def action_job_yaml(self) -> None:
        """Show the job's object."""
        self._go("yaml")

    def action_delete(self) -> None:
        """Ask whether to delete the job."""
        self._go("delete")

    def action_shell(self) -> None:
        """Open a shell in the instance under the cursor."""
        self._go("shell", self.instance_meant())

    def action_forward(self) -> None:
        """Forward the job's TensorBoard to this machine, or no longer."""
        self._go("forward")

    def action_clone(self) -> None:
        """Open the new-job form filled in like this job."""
        self._go("clone")

    def action_hold(self) -> None:
        """Ask whether to suspend the job."""
        self._go("suspend")

    def action_resume(self) -> None:
        """Ask whether to resume the job."""
        self._go("resume")

    def _go(self, where: str, argument: str = "") -> None:
        self.post_message(self.Go(where, argument, refs=[self.ref]))
