"""The learner, the batches and the scale of speed that the arguments ask for."""

import argparse

import torch
from torch import nn

from trainer.ddp.learner import Learner
from trainer.ddp.learning_set import LearningSet
from trainer.ddp.models.convolutional import ImageShape
from trainer.ddp.models.gpt import GptSize
from trainer.ddp.models.make import OWN, check_input, make_gpt, make_model
from trainer.ddp.speed.batch_size import choose_batch_size
from trainer.ddp.speed.flops import training_flops
from trainer.ddp.speed.measure import SpeedScale
from trainer.ddp.speed.peak import peak_flops
from trainer.ddp.step.optimizer import StepOptions
from trainer.ddp.step.parallel import ParallelOptions
from trainer.ddp.step.precision import Precision
from trainer.ddp.step.schedule import Schedule
from trainer.distributed.process_group import ProcessGroup

SMALL_BATCH_SIZE = 256
"""Samples evaluated at once where they are small."""

_SMALL = 3 * 32 * 32
"""Numbers of a sample that is."""


def make_learner(
    arguments: argparse.Namespace, learning_set: LearningSet, group: ProcessGroup
) -> tuple[Learner, int, SpeedScale]:
    """Make the learner, and return with it the batch size of a rank and what its samples count for.

    Raises:
        InvalidArguments: The device, the network and the data do not go together.
    """
    precision = Precision(arguments.precision, group.device)
    torch.manual_seed(arguments.seed)
    network = make_network(arguments, learning_set).to(group.device)
    shape = learning_set.shape
    is_image = len(shape) == 3
    if is_image and arguments.model not in OWN:
        check_input(network, arguments.model, image_shape(shape), group.device)
    flops = training_flops(network, shape) if group.ranks.is_first else 0
    options = step_options(arguments, precision, group.device, is_image)
    if options.is_channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch_size = arguments.batch_size or choose_batch_size(
        network, shape, group, precision, len(learning_set.train)
    )
    name = torch.cuda.get_device_name(group.device) if group.device.type == "cuda" else ""
    scale = speed_scale(learning_set, flops, name, precision.name, group.ranks.world_size)
    return Learner(network, group, precision, options), batch_size, scale


def speed_scale(
    learning_set: LearningSet, flops: int, gpu: str, precision: str, world_size: int
) -> SpeedScale:
    """Return what a sample of so many `flops` counts for on the GPUs of all ranks; "" is a processor."""
    peak = peak_flops(gpu, precision) * world_size
    return SpeedScale(learning_set.unit, learning_set.units_per_sample, flops, peak)


def make_network(arguments: argparse.Namespace, learning_set: LearningSet) -> nn.Module:
    """Make the network that the arguments name, for what is learnt.

    Raises:
        TrainingError: It cannot be made here.
    """
    shape, classes = learning_set.shape, learning_set.classes
    if arguments.model == "gpt":
        return make_gpt(GptSize(classes, shape[0], arguments.layers, arguments.heads, arguments.width))
    return make_model(arguments.model, image_shape(shape), classes, image_size=arguments.image_size)


def image_shape(shape: tuple[int, ...]) -> ImageShape:
    """Return the shape of an image as such."""
    channels, height, width = shape
    return channels, height, width


def step_options(
    arguments: argparse.Namespace, precision: Precision, device: torch.device, is_image: bool
) -> StepOptions:
    """Return how a step changes the network; what is auto is decided."""
    has_16_bits = device.type == "cuda" and precision.name in ("bf16", "fp16")
    channels_last = has_16_bits if arguments.channels_last == "auto" else arguments.channels_last == "on"
    return StepOptions(
        lr=arguments.lr,
        weight_decay=arguments.weight_decay,
        optimizer=arguments.optimizer,
        momentum=arguments.momentum,
        schedule=Schedule(
            arguments.schedule, arguments.warmup, arguments.step_epochs, arguments.gamma, arguments.epochs
        ),
        accumulate=arguments.accumulate,
        clip_norm=arguments.clip_norm,
        ema=arguments.ema,
        parallel=ParallelOptions(
            arguments.parallel, arguments.bucket_mb, arguments.static_graph, arguments.copy_buckets
        ),
        is_channels_last=channels_last and is_image,
        compile=arguments.compile,
        is_large=arguments.model not in OWN,
        seed=arguments.seed,
    )


def evaluated_at_once(chosen: int, batch_size: int, shape: tuple[int, ...]) -> int:
    """Return how many samples are evaluated at once: as chosen, else what fits as a step did."""
    is_small = len(shape) == 3 and shape[0] * shape[1] * shape[2] <= _SMALL
    return chosen or (max(batch_size, SMALL_BATCH_SIZE) if is_small else batch_size)


def how_it_computes(learner: Learner, batch_size: int) -> str:
    """Say what was decided of a step, in one line."""
    options = learner.options
    accumulated = f", {options.accumulate} batches a step" if options.accumulate > 1 else ""
    compiled = f"off ({learner.not_compiled})" if learner.not_compiled else "on (the first steps take longer)"
    layout = "channels last" if options.is_channels_last else "channels first"
    return f"batch size {batch_size} a process{accumulated}, {layout}, torch.compile {compiled}"
