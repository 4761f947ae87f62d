"""What `trainer.train_ddp` learns, and by which network."""

from trainer.arguments import Argument
from trainer.ddp_arguments.names import DATASETS, MODELS

LEARNING_ARGUMENTS = (
    Argument(
        "dataset",
        "digits",
        "",
        "What to learn: digits drawn on the spot, files in --data, or noise (images, sequences)",
        DATASETS,
    ),
    Argument("data", "mnist", "", "Folder or file of the data set (those from files)"),
    Argument("download", False, "", "Fetch MNIST into --data if it is not there"),
    Argument(
        "model", "cnn", "", "The network: one of our own, the gpt for tokens, or one of torchvision's", MODELS
    ),
    Argument("epochs", 5, "epochs", "How often to go through the training images", least=1, most=1_000_000),
    Argument(
        "batch-size",
        0,
        "images",
        "Images, or sequences, in a step of one process; 0 takes 32, and on a GPU as many as fit",
        least=0,
        most=1_000_000,
    ),
    Argument(
        "test-batch-size",
        0,
        "images",
        "Images evaluated at once by one process; 0 takes as many as a step, and of small ones 256",
        least=0,
        most=1_000_000,
        also=("val-batch-size",),
    ),
    Argument(
        "train-images",
        12_000,
        "images",
        "Images or sequences to make for training (datasets digits, images, sequences)",
        least=1,
        most=1_000_000_000,
    ),
    Argument(
        "val-images",
        2_000,
        "images",
        "Images or sequences to make for validation (datasets digits, images, sequences)",
        least=1,
        most=1_000_000_000,
    ),
    Argument(
        "image-size",
        0,
        "pixels",
        "Height and width of an image for the network; 0 is 224 for folders and noise, else the file's",
        least=0,
        most=4096,
    ),
    Argument("classes", 1000, "", "Classes to tell apart (dataset images)", least=2, most=1_000_000),
    Argument("augment", False, "", "Crop and mirror the training images at random (colour images)"),
    Argument(
        "workers",
        0,
        "threads",
        "Threads that decode images (dataset folder); 0 is one for each core of the process",
        least=0,
        most=1024,
    ),
    Argument("token-bytes", "1", "", "Bytes of a token in the file (dataset tokens)", ("1", "2", "4")),
    Argument(
        "vocabulary",
        0,
        "tokens",
        "Tokens there are; 0 is 256, for bytes (datasets tokens, sequences)",
        least=0,
        most=10_000_000,
    ),
    Argument("sequence-length", 256, "tokens", "Tokens of a sequence (gpt)", least=1, most=1_048_576),
    Argument("layers", 4, "layers", "Blocks of the gpt", least=1, most=1000),
    Argument("heads", 4, "heads", "Attention heads in a block of the gpt", least=1, most=1000),
    Argument("width", 128, "", "Numbers that stand for a token in the gpt", least=1, most=1_000_000),
    Argument(
        "seed",
        1,
        "",
        "Start of every random sequence; the same seed trains the same way",
        least=0,
        most=4_294_967_295,
    ),
)
"""In the order a form shows them."""
