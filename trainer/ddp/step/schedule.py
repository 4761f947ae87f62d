"""The learning rate over the whole training: a linear warm-up, then as the schedule says."""

import math
from dataclasses import dataclass

WARM_UP_SHARE = 0.1
"""Share of the training in which the learning rate rises, unless chosen."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A learning rate's course."""

    name: str = "cosine"
    """cosine, step or constant."""
    warm_up: float = WARM_UP_SHARE
    """Share of the training, 0 to 1, in which it rises."""
    step_epochs: int = 1
    """Of `step`: epochs after which it falls."""
    step_factor: float = 0.7
    """Of `step`: what it is multiplied with then."""
    epochs: int = 1
    """Of the whole training."""

    def factor(self, done: float) -> float:
        """Return the factor of the highest learning rate when `done` of the training, 0 to 1, is behind."""
        if done < self.warm_up:
            return 0.05 + 0.95 * done / self.warm_up
        if self.name == "constant":
            return 1.0
        if self.name == "step":
            return float(self.step_factor ** (int(done * self.epochs + 1e-9) // self.step_epochs))
        left = (done - self.warm_up) / (1 - self.warm_up) if self.warm_up < 1 else 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, left)))
