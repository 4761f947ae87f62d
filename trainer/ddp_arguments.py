"""The arguments of `trainer.train_ddp`.

The console reads them too, so nothing here imports torch or any other package.
"""

import argparse

from trainer.arguments import BACKENDS, Argument

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
GPT_BATCH_SIZE = 8
"""Default batch size of gpt, in sequences."""

_DATA_AND_MODEL = (
    Argument(
        "dataset",
        "digits",
        "",
        "Training data: generated digits, files in --data, or noise (images, sequences)",
        DATASETS,
    ),
    Argument("data", "mnist", "", "Folder or file of a data set that is read from files"),
    Argument("download", False, "", "Download MNIST into --data if it is missing"),
    Argument(
        "model", "cnn", "", "Network: a small one, gpt for tokens, or any torchvision classifier", MODELS
    ),
    Argument("epochs", 5, "epochs", "Passes over the training data", least=1, most=1_000_000),
    Argument(
        "batch-size",
        64,
        "images",
        f"Images or sequences per process and step; for --model gpt the default is {GPT_BATCH_SIZE}",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "test-batch-size",
        0,
        "images",
        "Images per process in an evaluation batch; auto means --batch-size, at least 256 of small images",
        least=0,
        most=1_000_000,
        also=("val-batch-size",),
        zero="auto",
    ),
    Argument(
        "train-images",
        12_000,
        "images",
        "Generated samples for training (datasets digits, images, sequences)",
        least=1,
        most=1_000_000_000,
    ),
    Argument(
        "val-images",
        2_000,
        "images",
        "Generated samples for validation (datasets digits, images, sequences)",
        least=1,
        most=1_000_000_000,
    ),
    Argument(
        "image-size",
        0,
        "pixels",
        "Height and width of the input images; auto means 224 for folders and noise, else the files' size",
        least=0,
        most=4096,
        zero="auto",
    ),
    Argument("classes", 1000, "", "Number of classes (dataset images)", least=2, most=1_000_000),
    Argument("augment", False, "", "Randomly crop and mirror the training images (color images)"),
    Argument(
        "workers",
        0,
        "threads",
        "Threads that decode images (dataset folder); auto means one per core of the process",
        least=0,
        most=1024,
        zero="auto",
    ),
    Argument("token-bytes", "1", "", "Bytes per token in the file (dataset tokens)", ("1", "2", "4")),
    Argument(
        "vocabulary",
        0,
        "tokens",
        "Number of distinct tokens; auto means 256, for bytes (datasets tokens, sequences)",
        least=0,
        most=10_000_000,
        zero="auto",
    ),
    Argument("sequence-length", 256, "tokens", "Tokens per sequence (gpt)", least=1, most=1_048_576),
    Argument("layers", 4, "layers", "Transformer blocks (gpt)", least=1, most=1000),
    Argument("heads", 4, "heads", "Attention heads per block (gpt)", least=1, most=1000),
    Argument("width", 128, "", "Embedding size (gpt)", least=1, most=1_000_000),
    Argument(
        "seed", 1, "", "Random seed; runs with the same seed train the same way", least=0, most=4_294_967_295
    ),
)
_STEP = (
    Argument(
        "lr",
        0.003,
        "",
        "Peak learning rate, reached after --warmup; then it follows --schedule",
        least=0,
        most=1e30,
    ),
    Argument(
        "optimizer",
        "auto",
        "",
        "Optimizer; auto means sgd if --momentum is given, else adamw",
        ("auto", "adamw", "sgd"),
    ),
    Argument(
        "momentum",
        0.0,
        "",
        "Momentum of SGD; none means AdamW unless --optimizer says otherwise",
        least=0,
        most=1,
        zero="none",
    ),
    Argument("weight-decay", 0.01, "", "Weight decay of the optimizer", least=0, most=100),
    Argument(
        "schedule",
        "cosine",
        "",
        "Learning rate after the warmup: cosine to zero, falling in steps, or constant",
        ("cosine", "step", "constant"),
    ),
    Argument("warmup", 0.1, "", "Fraction of the training in which the learning rate rises", least=0, most=1),
    Argument(
        "step-epochs", 1, "epochs", "Epochs between two reductions (schedule step)", least=1, most=1_000_000
    ),
    Argument(
        "gamma", 0.7, "", "Factor of each reduction of the learning rate (schedule step)", least=0, most=1
    ),
    Argument(
        "accumulate",
        1,
        "batches",
        "Batches whose gradients are accumulated for one step",
        least=1,
        most=100_000,
    ),
    Argument("clip-norm", 0.0, "", "Clip gradients to this norm", least=0, most=1e30, zero="off"),
    Argument(
        "device",
        "auto",
        "",
        "Device to train on; auto means a GPU if there is one",
        ("auto", "cpu", "cuda"),
        switches=(("no-cuda", "cpu"),),
    ),
    Argument(
        "backend", "auto", "", "Communication backend; auto means nccl between GPUs, else gloo", BACKENDS
    ),
    Argument(
        "precision",
        "auto",
        "",
        "Precision; auto means bf16 if the GPU has it, else fp32",
        ("auto", "fp32", "tf32", "bf16", "fp16", "fp64"),
    ),
    Argument(
        "channels-last",
        "auto",
        "",
        "Channels-last memory format; auto means on for 16-bit precision on a GPU",
        ("auto", "on", "off"),
    ),
    Argument(
        "compile",
        "auto",
        "",
        "Use torch.compile; auto means on for large networks on a GPU that supports it",
        ("auto", "on", "off"),
    ),
    Argument("bucket-mb", 25, "MB", "Bucket size of DDP", least=1, most=100_000),
    Argument(
        "static-graph", False, "", "Tell DDP that every step uses the same parameters in the same order"
    ),
    Argument(
        "copy-buckets", False, "", "Copy gradients out of DDP's buckets (gradient_as_bucket_view=False)"
    ),
)
_OUTPUT = (
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0", also=("logdir", "dir")),
    Argument(
        "log-every",
        10,
        "steps",
        "Steps between progress lines",
        least=1,
        most=1_000_000_000,
        also=("log-interval",),
    ),
    Argument(
        "profile",
        False,
        "",
        "Profile steps 5 to 9 of rank 0 with torch.profiler; the trace goes below --log-dir",
    ),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    Argument(
        "checkpoint-every",
        0,
        "steps",
        "Steps between checkpoints within an epoch; off means only at its end",
        least=0,
        most=1_000_000_000,
        zero="off",
    ),
    Argument(
        "save-path",
        "",
        "",
        "File for the final weights as a state_dict, written by rank 0",
        switches=(("save-model", "mnist_cnn.pt"),),
    ),
    Argument("keep", 2, "checkpoints", "Number of newest checkpoints to keep", least=1, most=1_000_000),
    Argument(
        "resume",
        "auto",
        "",
        "Resume from the newest checkpoint: auto if there is one, must or fail;"
        " never starts from scratch and moves existing checkpoints to a subfolder old-N",
        ("auto", "never", "must"),
    ),
    Argument(
        "on-full-disk",
        "stop",
        "",
        "When the checkpoint disk is full: stop, or train on and retry at the next checkpoint",
        ("stop", "continue"),
    ),
    Argument(
        "wait-for-others", 300, "s", "Time to wait for the other ranks at startup", least=1, most=604_800
    ),
)

DDP_ARGUMENTS = (*_DATA_AND_MODEL, *_STEP, *_OUTPUT)


def ddp_conflict(arguments: argparse.Namespace) -> str:
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
    if dataset == "tokens" and arguments.token_bytes != "1" and not arguments.vocabulary:
        return "argument --vocabulary: required if --token-bytes is not 1 (GPT-2's is 50257)"
    return ""
