"""What a rank says while it trains: lines a person reads and a console parses."""

import sys


def say(line: str) -> None:
    """Print one line at once and whole: `print` may write its end apart, and other ranks share the pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """Print one line to stderr, at once and whole."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def progress_line(
    *,
    epoch: int,
    epochs: int,
    step: int,
    steps: int,
    loss: float,
    lr: float,
    images_per_s: float,
    eta_s: float,
) -> str:
    """Say where training is; `epoch` counts from 1, `step` over the whole training.

    >>> progress_line(epoch=1, epochs=3, step=120, steps=564, loss=0.1234,
    ...               lr=9.8e-4, images_per_s=412.3, eta_s=72)
    'epoch 1/3 step 120/564 loss 0.1234 lr 9.8e-04 412 images/s eta 1m12s'
    """
    return (
        f"epoch {epoch}/{epochs} step {step}/{steps} loss {loss:.4f} lr {lr:.1e}"
        f" {images_per_s:.0f} images/s eta {duration(eta_s)}"
    )


def duration(seconds: float) -> str:
    """Say a time in at most two units: 12s, 1m12s, 3h05m."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
