"""The packaged trainers and their arguments, for command lines and for the console's forms: without torch."""

import argparse
from collections.abc import Mapping

from trainer.arguments import BACKEND, WAIT_FOR_OTHERS, Argument, Trainer, UnknownName, choice, flag, number

__all__ = ["TRAINERS", "Argument", "Trainer", "UnknownName", "find"]

# `digits` is drawn by the trainer itself; `images` and `sequences` are noise; the others are files.
DATASETS = ("digits", "mnist", "folder", "tokens", "images", "sequences")
FROM_FILES = ("mnist", "folder", "tokens")
OF_TOKENS = ("tokens", "sequences")
OWN_MODELS = ("cnn", "lenet", "t9k-cnn", "gpt")
_TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161
densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m
efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf
regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf
regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101
resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d resnext50_32x4d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16
vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2
wide_resnet50_2
"""

MODELS = (*OWN_MODELS, *_TORCHVISION.split())
GPT_BATCH_SIZE = 8  # default batch size of gpt, in sequences

_MANY = 1_000_000_000
_ON_OFF = ("auto", "on", "off")

_DDP_ARGUMENTS = (
    # data and network
    choice("dataset", DATASETS,
           "Training data: generated digits, files in --data, or noise (images, sequences)"),
    Argument("data", "mnist", "", "Folder or file of a data set that is read from files"),
    flag("download", "Download MNIST into --data if it is missing"),
    choice("model", MODELS, "Network: a small one, gpt for tokens, or any torchvision classifier"),
    number("epochs", 5, "epochs", 1, 1_000_000, "Passes over the training data"),
    number("batch-size", 64, "images", 1, 1_000_000,
           f"Images or sequences per process and step; for --model gpt the default is {GPT_BATCH_SIZE}"),
    number("test-batch-size", 0, "images", 0, 1_000_000,
           "Images per process in an evaluation batch; auto means --batch-size, at least 256 of small images",
           zero="auto", also=("val-batch-size",)),
    number("train-images", 12_000, "images", 1, _MANY,
           "Generated samples for training (datasets digits, images, sequences)"),
    number("val-images", 2_000, "images", 1, _MANY,
           "Generated samples for validation (datasets digits, images, sequences)"),
    number("image-size", 0, "pixels", 0, 4096,
           "Height and width of the input images; auto means 224 for folders and noise, else the files' size",
           zero="auto"),
    number("classes", 1000, "", 2, 1_000_000, "Number of classes (dataset images)"),
    flag("augment", "Randomly crop and mirror the training images (color images)"),
    number("workers", 0, "threads", 0, 1024,
           "Threads that decode images (dataset folder); auto means one per core of the process",
           zero="auto"),
    choice("token-bytes", ("1", "2", "4"), "Bytes per token in the file (dataset tokens)"),
    number("vocabulary", 0, "tokens", 0, 10_000_000,
           "Number of distinct tokens; auto means 256, for bytes (datasets tokens, sequences)", zero="auto"),
    number("sequence-length", 256, "tokens", 1, 1_048_576, "Tokens per sequence (gpt)"),
    number("layers", 4, "layers", 1, 1000, "Transformer blocks (gpt)"),
    number("heads", 4, "heads", 1, 1000, "Attention heads per block (gpt)"),
    number("width", 128, "", 1, 1_000_000, "Embedding size (gpt)"),
    number("seed", 1, "", 0, 4_294_967_295, "Random seed; runs with the same seed train the same way"),
    # step
    number("lr", 0.003, "", 0, 1e30,
           "Peak learning rate, reached after --warmup; then it follows --schedule"),
    choice("optimizer", ("auto", "adamw", "sgd"),
           "Optimizer; auto means sgd if --momentum is given, else adamw"),
    number("momentum", 0.0, "", 0, 1,
           "Momentum of SGD; none means AdamW unless --optimizer says otherwise", zero="none"),
    number("weight-decay", 0.01, "", 0, 100, "Weight decay of the optimizer"),
    choice("schedule", ("cosine", "step", "constant"),
           "Learning rate after the warmup: cosine to zero, falling in steps, or constant"),
    number("warmup", 0.1, "", 0, 1, "Fraction of the training in which the learning rate rises"),
    number("step-epochs", 1, "epochs", 1, 1_000_000, "Epochs between two reductions (schedule step)"),
    number("gamma", 0.7, "", 0, 1, "Factor of each reduction of the learning rate (schedule step)"),
    number("accumulate", 1, "batches", 1, 100_000, "Batches whose gradients are accumulated for one step"),
    number("clip-norm", 0.0, "", 0, 1e30, "Clip gradients to this norm", zero="off"),
    choice("device", ("auto", "cpu", "cuda"),
           "Device to train on; auto means a GPU if there is one", switches=(("no-cuda", "cpu"),)),
    BACKEND,
    choice("precision", ("auto", "fp32", "tf32", "bf16", "fp16", "fp64"),
           "Precision; auto means bf16 if the GPU has it, else fp32"),
    choice("channels-last", _ON_OFF,
           "Channels-last memory format; auto means on for 16-bit precision on a GPU"),
    choice("compile", _ON_OFF,
           "Use torch.compile; auto means on for large networks on a GPU that supports it"),
    number("bucket-mb", 25, "MB", 1, 100_000, "Bucket size of DDP"),
    flag("static-graph", "Tell DDP that every step uses the same parameters in the same order"),
    flag("copy-buckets", "Copy gradients out of DDP's buckets (gradient_as_bucket_view=False)"),
    # output
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0", also=("logdir", "dir")),
    number("log-every", 10, "steps", 1, _MANY, "Steps between progress lines", also=("log-interval",)),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    number("checkpoint-every", 0, "steps", 0, _MANY,
           "Steps between checkpoints within an epoch; off means only at its end", zero="off"),
    Argument("save-path", "", "", "File for the final weights as a state_dict, written by rank 0",
             switches=(("save-model", "mnist_cnn.pt"),)),
    number("keep", 2, "checkpoints", 1, 1_000_000, "Number of newest checkpoints to keep"),
    choice("resume", ("auto", "never", "must"),
           "Resume from the newest checkpoint: auto if there is one, must or fail;"
           " never starts from scratch and moves existing checkpoints to a subfolder old-N"),
    choice("on-full-disk", ("stop", "continue"),
           "When the checkpoint disk is full: stop, or train on and retry at the next checkpoint"),
    WAIT_FOR_OTHERS,
)  # fmt: skip
_MPI_ARGUMENTS = (
    Argument("model", "resnet50", "", "Network to measure: torchvision's, or a tiny one",
             ("vgg16", "resnet50", "resnet18", "tiny")),
    number("batch-size", 32, "images", 1, 1_000_000, "Images per process and step"),
    number("num-warmup-batches", 10, "batches", 0, 1_000_000, "Warm-up batches, not measured"),
    number("num-batches-per-iter", 10, "batches", 1, 1_000_000, "Batches per measurement"),
    number("num-iters", 10, "iterations", 1, 1_000_000, "Number of measurements"),
    choice("precision", ("fp32", "tf32", "bf16", "fp16"),
           "Precision: strict fp32, or a faster one of GPUs; bf16 also works on CPUs"),
    flag("fp16-allreduce", "Exchange gradients as 16-bit numbers"),
    flag("no-cuda", "Use the CPU even if there is a GPU"),
    Argument("log-dir", "", "", "Folder for event files with one point per measurement, written by rank 0",
             also=("logdir",)),
    Argument("json", "", "", "File for the result as JSON, written by rank 0"),
    number("allreduce-mib", 0, "MiB", 0, 16_384,
           "Largest message of the final all-reduce measurement; auto means 256 between GPUs, else 16",
           zero="auto"),
    flag("throughput-only", "Skip the measurements of a single rank and of all-reduce"),
    BACKEND,
    WAIT_FOR_OTHERS,
)  # fmt: skip


def _ddp_implied(given: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults that follow from the arguments given, both by name."""
    is_gpt, found = given.get("model") == "gpt", {}
    if "data" in given and "dataset" not in given:
        found["dataset"] = "tokens" if is_gpt else "mnist"
    if is_gpt and "batch-size" not in given:
        found["batch-size"] = str(GPT_BATCH_SIZE)
    return found


def _ddp_conflict(arguments: argparse.Namespace) -> str:
    """Return an error, worded as argparse's, if arguments conflict; "" if they do not."""
    model, dataset = arguments.model, arguments.dataset
    if arguments.batch_size == 1 and model not in OWN_MODELS:
        return (
            f"argument --batch-size: 1 is not 2 or more, which --model {model} needs"
            " (it normalizes over the images of a step)"
        )
    if (model == "gpt") != (dataset in OF_TOKENS):
        fitting = (
            f"name a text or token file with --data, or choose --dataset {' or '.join(OF_TOKENS)}"
            if model == "gpt"
            else "choose --model gpt"
        )
        return f"argument --model: {model} cannot train on --dataset {dataset}; {fitting}"
    if model == "gpt" and arguments.width % arguments.heads:
        return f"argument --width: {arguments.width} is not a multiple of --heads {arguments.heads}"
    if dataset in OF_TOKENS and arguments.token_bytes != "1" and not arguments.vocabulary:
        return "argument --vocabulary: required if --token-bytes is not 1 (GPT-2's is 50257)"
    return ""


# In the order in which a form shows them.
TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        _DDP_ARGUMENTS,
        conflict=_ddp_conflict,
        implied=_ddp_implied,
        removed={"profile": "run the trainer under nsys profile or py-spy record"},
    ),
    Trainer(
        "mpi",
        "Measure how many images a second a network trains on",
        "trainer.train_mpi",
        _MPI_ARGUMENTS,
        launcher="mpirun",
        removed={
            "master-addr": "set MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)",
            "master-port": "set MASTER_PORT (mpirun -x MASTER_PORT=PORT)",
        },
    ),
)


def find(name: str) -> Trainer:
    """Look up a trainer by name; UnknownName if there is none."""
    found = {trainer.name: trainer for trainer in TRAINERS}
    if name not in found:
        raise UnknownName(f"There is no trainer {name!r}. There is: {', '.join(found)}.")
    return found[name]
