"""What `trainer.train_ddp` learns, by which network, how, and where it computes."""

from trainer.arguments import BACKENDS, Argument

DATASETS = ("digits", "mnist")
"""`digits` is drawn by the trainer itself; `mnist` is read from files."""

MODELS = ("cnn", "resnet18", "resnet34", "resnet50", "mobilenet_v3_small")
"""`cnn` is the trainer's own; the others are torchvision's."""

DEVICES = ("auto", "cpu", "cuda")
"""Where to compute."""

LEARNING_ARGUMENTS = (
    Argument(
        "dataset", "digits", "", "What to learn: digits drawn on the spot, or MNIST from --data", DATASETS
    ),
    Argument("data", "mnist", "", "Folder with MNIST's four files (dataset mnist)"),
    Argument("download", False, "", "Fetch MNIST into --data if it is not there"),
    Argument("model", "cnn", "", "The network: a small one of our own, or one of torchvision's", MODELS),
    Argument("epochs", 5, "epochs", "How often to go through the training images", least=1, most=1_000_000),
    Argument("batch-size", 32, "images", "Images in a step of one process", least=1, most=1_000_000),
    Argument(
        "test-batch-size",
        256,
        "images",
        "Images evaluated at once by one process",
        least=1,
        most=1_000_000,
        also=("val-batch-size",),
    ),
    Argument(
        "lr", 0.003, "", "Highest learning rate; it rises at the start and falls to zero", least=0, most=1e30
    ),
    Argument("momentum", 0.0, "", "Train by SGD with this momentum; 0 trains by AdamW", least=0, most=1),
    Argument("weight-decay", 0.01, "", "How strongly AdamW pulls weights to zero", least=0, most=100),
    Argument(
        "train-images",
        12_000,
        "images",
        "Digits to draw for training (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "val-images",
        2_000,
        "images",
        "Digits to draw for validation (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "seed",
        1,
        "",
        "Start of every random sequence; the same seed trains the same way",
        least=0,
        most=4_294_967_295,
    ),
    Argument(
        "device",
        "auto",
        "",
        "Where to compute; auto takes a GPU if there is one",
        DEVICES,
        switches=(("no-cuda", "cpu"),),
    ),
    Argument("backend", "auto", "", "What carries gradients: auto is nccl between GPUs, else gloo", BACKENDS),
    Argument("precision", "fp32", "", "Numbers to compute with; bf16 is for GPUs", ("fp32", "bf16")),
)
"""In the order a form shows them."""
