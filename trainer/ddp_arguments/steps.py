"""How a step of `trainer.train_ddp` computes, and changes the network."""

from trainer.arguments import BACKENDS, Argument

DEVICES = ("auto", "cpu", "cuda")
"""Where to compute."""

PRECISIONS = ("auto", "fp32", "tf32", "bf16", "fp16", "fp64")
"""Numbers to compute with."""

SWITCH = ("auto", "on", "off")
"""What auto decides by the device and the network."""

STEP_ARGUMENTS = (
    Argument(
        "lr",
        0.003,
        "",
        "Highest learning rate; it rises at the start, then follows --schedule",
        least=0,
        most=1e30,
    ),
    Argument(
        "optimizer",
        "auto",
        "",
        "What turns gradients into steps; auto is sgd with a --momentum, else adamw",
        ("auto", "adamw", "sgd"),
    ),
    Argument("momentum", 0.0, "", "Train by SGD with this momentum; 0 trains by AdamW", least=0, most=1),
    Argument("weight-decay", 0.01, "", "How strongly the optimizer pulls weights to zero", least=0, most=100),
    Argument(
        "schedule",
        "cosine",
        "",
        "The learning rate after its rise: a cosine to zero, falling by steps, or constant",
        ("cosine", "step", "constant"),
    ),
    Argument("warmup", 0.1, "", "Share of the training in which the learning rate rises", least=0, most=1),
    Argument("step-epochs", 1, "epochs", "Epochs between two falls (schedule step)", least=1, most=1_000_000),
    Argument(
        "gamma", 0.7, "", "What each fall multiplies the learning rate with (schedule step)", least=0, most=1
    ),
    Argument(
        "accumulate",
        1,
        "batches",
        "Batches of --batch-size that make one step together",
        least=1,
        most=100_000,
    ),
    Argument(
        "clip-norm", 0.0, "", "Longest gradient, which longer ones are cut to; 0 is any", least=0, most=1e30
    ),
    Argument(
        "ema",
        0.0,
        "",
        "Validate a moving average of the weights with this decay, such as 0.999; 0 has none",
        least=0,
        most=0.999999,
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
    Argument(
        "precision",
        "auto",
        "",
        "Numbers to compute with; auto is bf16 where the GPU has it, else fp32",
        PRECISIONS,
    ),
    Argument(
        "channels-last",
        "auto",
        "",
        "Lay the channels of a pixel side by side; auto does on a GPU with 16 bits",
        SWITCH,
    ),
    Argument(
        "compile",
        "auto",
        "",
        "Use torch.compile; auto does for large networks on a GPU, where it can work",
        SWITCH,
    ),
    Argument(
        "parallel",
        "ddp",
        "",
        "A copy of the network on each rank, or of the gpt a part (fsdp, FSDP2)",
        ("ddp", "fsdp"),
    ),
    Argument("bucket-mb", 25, "MB", "Gradients that DDP sends together", least=1, most=100_000),
    Argument("static-graph", False, "", "Tell DDP that every step uses the same weights"),
    Argument(
        "copy-buckets", False, "", "Have DDP copy gradients out of its buckets (gradient_as_bucket_view off)"
    ),
)
"""In the order a form shows them."""
