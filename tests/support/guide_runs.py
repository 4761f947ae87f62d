"""Records like those of the four jobs of the guide with GPU topology."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from trainer.tfevents import ScalarCurve
from tui.runs.record import RunRecord, with_values

# Name, model, GPUs, slowest link and rate of each
GUIDE = (
    ("pytorch-topo-4-vgg16", "vgg16", "0-3", "NV1 20 GB/s", 820.5),
    ("pytorch-4-vgg16", "vgg16", "0 3-4 7", "SYS 6 GB/s", 481.4),
    ("pytorch-topo-4-resnet50", "resnet50", "0-3", "NV1 20 GB/s", 1251.8),
    ("pytorch-4-resnet50", "resnet50", "0 3-4 7", "SYS 6 GB/s", 822.4),
)


def curve(tag: str, values: Sequence[float], start_s: float = 100.0, step_s: float = 10.0) -> ScalarCurve:
    times = array("d", (start_s + at * step_s for at in range(len(values))))
    return ScalarCurve(".", tag, "w", array("q", range(len(values))), times, array("d", values), ())


def ended_run(name: str, losses: Sequence[float] = (), **more: Any) -> RunRecord:
    """Return the record of a job with 4 GPUs that ran for a quarter of an hour."""
    more = {"image": "x", "kind": "MPIJob", "gpus": 4, "started_s": 90.0, "ended_s": 990.0, **more}
    record = RunRecord(name, name, "default", status="Succeeded", **more)
    return with_values(record, [curve("train/loss", losses)] if losses else [])


def guide() -> list[RunRecord]:
    return [
        ended_run(
            name, arguments={"--model": model, "--batch-size": "64"}, placement=f"gpu-1: {gpus}", link=link,
            throughput=rate, throughput_unit="img/s",
        )
        for name, model, gpus, link, rate in GUIDE
    ]  # fmt: skip
