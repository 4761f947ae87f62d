"""What a trainer says when it cannot go on: one line with what, why and what to do now."""


class TrainingError(Exception):
    """A failure that the user can act on; shown without a traceback.

    `what`, `why` and `now` are sentences. It travels to the other ranks by pickle.
    """

    exit_status = 1
    """What the process ends with."""

    def __init__(self, what: str, why: str = "", now: str = "") -> None:
        super().__init__(what, why, now)

    def __str__(self) -> str:
        return " ".join(part for part in self.args if part)


class InvalidArguments(TrainingError):
    """Arguments or environment with which no training can start."""

    exit_status = 2


class NotFinite(TrainingError):
    """The loss is no number any more: nothing good can be learnt from here on."""


class Stopped(TrainingError):
    """Somebody asked the job to stop, and it did."""

    def __init__(self, what: str, why: str = "", now: str = "", signal: int = 0) -> None:
        super().__init__(what, why, now)
        self.exit_status = 128 + signal
