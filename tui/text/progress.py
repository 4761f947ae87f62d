"""A job's progress, parsed from its newest log line; never computed or guessed."""

from __future__ import annotations

import re

_EPOCH = re.compile(r"\bepochs?\s*[:=]?\s*\[?(\d{1,9})\s*(?:/|of)\s*(\d{1,9})\b", re.IGNORECASE)
# `Train Epoch: 1 [640/60000 (1%)]`, `Epoch 3: 42%|`, and the dicts of Hugging Face's Trainer.
_EPOCH_ALONE = re.compile(
    r"\bepoch:?\s*\[?(\d{1,9})\]?\s*(?=\[|:)|'epoch': '?(\d{1,9}(?:\.\d{1,9})?)\b", re.IGNORECASE
)
_SAMPLES = re.compile(r"\bepoch:?\s*\[?\d{1,9}\]?\s*\[\s*(\d{1,12}/\d{1,12})\b", re.IGNORECASE)
_ITERATION = re.compile(r"\bIter #(\d{1,9}): ")
_STEP = re.compile(
    r"\b(?:global_)?(step|iter|iteration|batch)s?\s*[:=]?\s*\[?\s*(\d{1,12})\s*(?:/|of)\s*(\d{1,12})\b",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d)?) ?%(?=\||\s|$|[,;)\]])")
_ETA = re.compile(r"\beta\s*[:=]?\s*((?:\d+ days?, )?\d[\d:.]*(?:[dhms]\d*)*)", re.IGNORECASE)
# The end of tqdm's bar: `120/200 [1:02<0:40, 1.93it/s]`.
_BAR_ETA = re.compile(r"\|[^|\[]*\[[\d:]+<([\d:]+)[,\]]")
_LONGEST = 2000


def progress_in(line: str) -> str:
    """Return the progress in a line as `epoch 2/3 step 120/564 ETA 1m12s`; empty without any.

    >>> progress_in("epoch 1/3 step 120/564 loss 0.1234 lr 9.8e-04 412 images/s eta 1m12s")
    'epoch 1/3 step 120/564 ETA 1m12s'
    """
    text = line[:_LONGEST]
    epoch, step = _EPOCH.search(text), _STEP.search(text)
    eta = _ETA.search(text) or _BAR_ETA.search(text)
    percent = _PERCENT.search(text) if "|" in text or eta else None
    alone, samples, iteration = _EPOCH_ALONE.search(text), _SAMPLES.search(text), _ITERATION.search(text)
    found = [
        f"epoch {epoch[1]}/{epoch[2]}" if epoch else f"epoch {alone[1] or alone[2]}" if alone else "",
        samples[1] if samples else "",
        f"iter #{iteration[1]}" if iteration else "",
        f"{step[1].lower()} {step[2]}/{step[3]}" if step else "",
        f"{percent[1]}%" if percent and float(percent[1]) <= 100 else "",
        f"ETA {eta[1]}" if eta else "",
    ]
    return " ".join(filter(None, found))
