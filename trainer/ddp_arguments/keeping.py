"""What `trainer.train_ddp` writes and keeps, what it goes on from, and whom it waits for."""

from trainer.arguments import Argument

RESUME_MODES = ("auto", "never", "must")
"""What to do about checkpoints that are there already."""

WHEN_FULL = ("stop", "continue")
"""What to do when the disk of the checkpoints is full."""

KEEPING_ARGUMENTS = (
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0", also=("logdir", "dir")),
    Argument(
        "log-every",
        10,
        "steps",
        "Steps between two lines of progress",
        least=1,
        most=1_000_000_000,
        also=("log-interval",),
    ),
    Argument(
        "profile",
        False,
        "",
        "Record steps 5 to 9 of rank 0 with torch.profiler in a trace file below --log-dir",
    ),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    Argument(
        "checkpoint-every",
        0,
        "steps",
        "Steps between two checkpoints within an epoch; 0 writes one at its end only",
        least=0,
        most=1_000_000_000,
    ),
    Argument(
        "save-path",
        "",
        "",
        "File for the trained weights alone, a state_dict, written by rank 0 at the end",
        switches=(("save-model", "mnist_cnn.pt"),),
    ),
    Argument("keep", 2, "checkpoints", "How many of the newest checkpoints to keep", least=1, most=1_000_000),
    Argument(
        "resume",
        "auto",
        "",
        "Go on from the newest checkpoint: if there is one, never, or fail;"
        " never moves the checkpoints that are there to a folder old-N beside them",
        RESUME_MODES,
    ),
    Argument(
        "on-full-disk",
        "stop",
        "",
        "When a checkpoint finds no room on its disk: stop, or train on and try again with the next",
        WHEN_FULL,
    ),
    Argument(
        "wait-for-others",
        300,
        "s",
        "How long a process waits for the others before training",
        least=1,
        most=604_800,
    ),
)
"""In the order a form shows them."""
