"""Figures of speed: operations of a step, peaks of known GPUs, throughput and MFU."""

import importlib.util
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from torch.utils.flop_counter import FlopCounterMode

from trainer.ddp.models import Gpt, GptSize, make_model
from trainer.ddp.step_stats import SpeedScale, peak_flops, training_flops


def test_operations_of_a_small_network_are_those_counted_by_hand() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.Linear(10, 5))
    forward = 2 * (784 * 10 + 10 * 5)
    backward = 2 * (784 * 10 + 2 * 10 * 5)  # images themselves have no gradient
    assert training_flops(network, (1, 28, 28)) == forward + backward
    assert all(weight.device.type == "cpu" and weight.grad is None for weight in network.parameters())


def test_operations_of_a_gpt_by_formula_are_those_that_torch_counts() -> None:
    size = GptSize(vocabulary=64, length=32, layers=3, heads=4, width=32)
    gpt = Gpt(size).to("meta")
    counter = FlopCounterMode(display=False)
    with counter:
        gpt(torch.zeros(2, 32, dtype=torch.int64, device="meta")).sum().backward()
    formula = training_flops(gpt, (32,))
    assert formula == 32 * (6 * (64 * 32 + 3 * 12 * 32 * 32) + 12 * 3 * 32 * 32)
    assert counter.get_total_flops() / 2 == pytest.approx(formula, rel=0.1)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs torchvision")
def test_operations_of_resnet18_are_three_times_those_published_for_its_forward_pass() -> None:
    network = make_model("resnet18", (3, 224, 224), 1000)
    published = 2 * 1.814e9  # multiply-adds
    assert training_flops(network, (3, 224, 224)) == pytest.approx(3 * published, rel=0.04)


def test_what_cannot_be_counted_counts_for_nothing() -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: Any) -> Any:
            return images if float(images.sum()) else self.weight

    assert training_flops(Odd(), (1, 2, 2)) == 0


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-PCIE-40GB", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "fp16", 835),
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H20", "bf16", 148),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla V100-SXM2-16GB", "bf16", 0),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA A10G", "bf16", 0),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 4090 D", "bf16", 0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", 0),
        ("NVIDIA A100-SXM4-80GB", "fp64", 0),
        ("AMD Instinct MI300X", "bf16", 0),
        ("", "fp32", 0),
    ],
)
def test_a_peak_is_known_by_the_name_of_the_gpu_and_claimed_of_no_other(
    name: str, precision: str, teraflops: float
) -> None:
    assert peak_flops(name, precision) == teraflops * 1e12


def test_speed_is_counted_in_tokens_of_a_gpt_and_mfu_only_where_a_peak_is_known() -> None:
    assert SpeedScale().scalars(40.0) == {"train/images_per_s": 40.0}
    scale = SpeedScale("tokens", 256, flops_per_sample=10**9, peak_flops=4e12)
    assert scale.scalars(1000.0) == {"train/tokens_per_s": 256_000.0, "train/mfu": 0.25}
    assert SpeedScale("tokens", 256, 0, 4e12).scalars(1.0) == {"train/tokens_per_s": 256.0}
