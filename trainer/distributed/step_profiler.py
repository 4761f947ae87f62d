"""A torch.profiler trace of a few steps."""

import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from trainer.messages import first_line, log, log_error

# From step 5, counted from 1: the steps before it are slower.
FIRST_STEP, STEPS = 5, 5


class StepProfiler:
    """Records `STEPS` steps from `FIRST_STEP` into one trace file in `folder`."""

    def __init__(self, folder: Path, rank: int, device: torch.device) -> None:
        # TensorBoard's profiler plugin looks for such names.
        self.path = folder / f"rank{rank}.pt.trace.json"
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes lines of its own to stderr
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=FIRST_STEP - 3, warmup=2, active=STEPS, repeat=1),
            on_trace_ready=self._save,
        )
        self._taken = 0
        self._is_saved = False

    def __enter__(self) -> "StepProfiler":
        self._profile.start()
        return self

    def step(self) -> None:
        """Count a step."""
        if not self._is_saved:
            self._taken += 1
            self._profile.step()

    def __exit__(self, *_: object) -> None:
        self._profile.stop()
        if not self._is_saved:
            log_error(
                f"warning: No profile was written: it begins with step {FIRST_STEP} of a run,"
                f" and this one took {self._taken}."
            )

    def _save(self, recorded: "profile") -> None:
        if self._taken < FIRST_STEP:
            return
        self._is_saved = True
        last = min(self._taken, FIRST_STEP + STEPS - 1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            recorded.export_chrome_trace(str(self.path))
        except (OSError, RuntimeError) as error:
            log_error(f"warning: The profile could not be written to {self.path}. {first_line(error)}.")
        else:
            log(
                f"profile of steps {FIRST_STEP} to {last} in {self.path.resolve()}"
                " (open it at https://ui.perfetto.dev or in chrome://tracing)"
            )
