"""Steps and scalars parsed from the output of training scripts.

Knows the formats of the packaged trainers, PyTorch's examples (MNIST, ImageNet), T9k's and Arena's guides,
Horovod's synthetic benchmark, tqdm's bars, and the dicts of Hugging Face's Trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from k8s.text.sanitize import log_text

# Limit per line, or per part between carriage returns.
LONGEST_CHARS = 2000
LARGEST_STEP = 10**18
# Limit of parts between carriage returns, from the end of a line.
MOST_PARTS = 64

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf"
_WORTH_READING = re.compile(rb"loss|acc|img/sec|%\|", re.IGNORECASE)
_STEP = re.compile(r"\b(?:global_)?(?:step|iter|iteration)s?\s*[ =:]\s*\[?(\d{1,18})\b", re.IGNORECASE)
# `Train Epoch: 1 [640/60000 (1%)]`: PyTorch's MNIST example and Arena's. Epochs count from 1.
_SAMPLES = re.compile(r"\bepoch:?\s*(\d{1,9})\s*\[\s*(\d{1,12})/(\d{1,12})\b", re.IGNORECASE)
# `Epoch: [0][ 10/391]`: PyTorch's ImageNet example. Epochs count from 0.
_BRACKETED = re.compile(r"\bepoch:?\s*\[(\d{1,9})\]\s*\[\s*(\d{1,12})/(\d{1,12})\]", re.IGNORECASE)
# `epoch 1/10, batch   500/1500 with loss: 0.5`: T9k's script. Epochs count from 1.
_BATCH = re.compile(r"\bepoch:?\s*(\d{1,9})/\d{1,9}\W{1,4}batch:?\s*(\d{1,12})/(\d{1,12})\b", re.IGNORECASE)
# `Epoch 3:  42%|████▏     | 420/1000 [00:42<00:58, 10.0it/s, loss=0.512]`: tqdm.
_BAR = re.compile(
    r"(?:\bepoch:?\s*(\d{1,9})\S{0,12}:?\s*)?\d{1,3}%\|[^|]{0,400}\|\s*(\d{1,12})/(\d{1,12})\s*\[", re.I
)
# `Iter #0: 205.5 img/sec per GPU`: Horovod's synthetic benchmark.
_BENCHMARK = re.compile(rf"\bIter #(\d{{1,9}}): ({_NUMBER}) (img/sec per \S{{1,20}})")
_DICT = re.compile(r"\{(?='[A-Za-z_]{1,40}': )[^{}]{1,1500}\}")
# `{'loss': 0.5, 'learning_rate': 4.9e-05, 'epoch': 0.1}`: Hugging Face's Trainer.
_DICT_PAIR = re.compile(rf"'([A-Za-z_][\w/.-]{{0,60}})': '?({_NUMBER})'?(?=[,}}])", re.IGNORECASE)
# `epoch 1/10 with val loss: 0.07, val accuracy: 0.97`, `Test set: Average loss: 0.05`, `accuracy=0.9904`.
_EVALUATED = re.compile(
    r"(?:\bepoch:?\s*(\d{1,9})(?:/\d{1,9})?\W{0,3}(?:with )?)?"
    r"(?:\b(?:val|valid|validation|test|eval)(?: set:)?(?: average)?[ _/](?:loss|acc)"
    r"|^\W{0,9}(?:accuracy|acc)\s*[=:])",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?:\b(train|val|valid|validation|test|eval)(?: set:)?(?: average)? )?"
    rf"(?<![\w.])([A-Za-z][A-Za-z0-9_/.-]{{0,60}})\s*[ =:]\s*({_NUMBER})(?![\w/%.:]{{0,80}}[\w/:])",
    re.IGNORECASE,
)
_SHARE = re.compile(r"\baccuracy:? (\d{1,12})/(\d{1,12}) \(", re.IGNORECASE)
_NAMES = re.compile(
    r"loss|acc|lr|learning_rate|ppl|perplexity|norm|reward|error|img|images|tokens", re.IGNORECASE
)

_EPOCH_ALONE = re.compile(r"\bepoch:?\s*\[?(\d{1,9})\b", re.IGNORECASE)

Scalars = tuple[tuple[str, float], ...]


def step_in(raw: bytes) -> int | None:
    """Return the step, or else the epoch, that a line names; progress bars and evaluations name none."""
    text = log_text(raw[: 4 * LONGEST_CHARS], cap=LONGEST_CHARS)
    if (found := _STEP.search(text)) is None and "%|" not in text:
        within = any(each.search(text) for each in (_SAMPLES, _BRACKETED, _BATCH))
        found = None if within else _BENCHMARK.search(text) or _EPOCH_ALONE.search(text)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class TrainingPoint:
    """Scalars of one step."""

    step: int
    """As printed; counted over all epochs if a script counts within them, in samples, batches or steps."""
    scalars: Scalars


class TrainingLineReader:
    """Parser of one rank's lines, in order; scalars without a step belong to the last one."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._epoch_steps = 0
        self._longest_bar = self._bar_step = self._dicts = 0

    def read(self, raw: bytes) -> list[TrainingPoint]:
        """Return the points of a line, which may hold several bars separated by carriage returns."""
        if not _WORTH_READING.search(raw):
            return []
        parts = raw.rsplit(b"\r", MOST_PARTS)[-MOST_PARTS:] if b"\r" in raw else [raw]
        texts = (log_text(part[: 4 * LONGEST_CHARS], cap=LONGEST_CHARS) for part in parts if part)
        return [point for text in texts for point in self._points(text)]

    def _points(self, text: str) -> Iterator[TrainingPoint]:
        bar, said = _BAR.search(text), _DICT.search(text)
        if bar and int(bar[3]) >= self._longest_bar:
            self._longest_bar, self._bar_step = int(bar[3]), int(bar[2])
        if benchmark := _BENCHMARK.search(text):
            yield TrainingPoint(int(benchmark[1]), ((benchmark[3], float(benchmark[2])),))
            return
        if said:
            self._dicts += 1
            step = self._bar_step if self._longest_bar else self._dicts
            scalars = tuple((name, float(value)) for name, value in _DICT_PAIR.findall(said[0]))
        else:
            found = self._step_of(text, bar)
            if found is None:
                return
            step, scalars = found, tuple(_pairs(text))
        scalars = tuple(each for each in scalars if _NAMES.search(each[0]))
        if step <= LARGEST_STEP and any(
            "loss" in name.lower() or "acc" in name.lower() for name, _ in scalars
        ):
            yield TrainingPoint(step, scalars)

    def _step_of(self, text: str, bar: re.Match[str] | None) -> int | None:
        """Return the step of a line; None if it names none and ends no epoch."""
        for pattern, first_epoch in ((_SAMPLES, 1), (_BRACKETED, 0), (_BATCH, 1)):
            if within := pattern.search(text):
                self._epoch_steps = int(within[3])
                self._step = max(0, int(within[1]) - first_epoch) * int(within[3]) + int(within[2])
                return self._step
        if bar:
            self._step = int(bar[1] or 0) * int(bar[3]) + int(bar[2])
            return self._step
        if step := _STEP.search(text):
            self._step = int(step[1])
            return self._step
        if (evaluated := _EVALUATED.search(text)) is None or self._step is None:
            return None
        return int(evaluated[1]) * self._epoch_steps if evaluated[1] and self._epoch_steps else self._step


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    """Yield the `name value` pairs of a line; `val loss: 0.07` becomes val_loss."""
    kind = ""
    for about, name, value in _PAIR.findall(text):
        kind = {"valid": "val", "validation": "val"}.get(about.lower(), about.lower()) or kind
        yield (f"{kind}_{name.lower()}" if about else name), float(value)
    if share := _SHARE.search(text):
        yield f"{kind}_accuracy".lstrip("_"), int(share[1]) / max(1, int(share[2]))
