"""Which arguments of `trainer.train_ddp` do not go together."""

import argparse

from trainer.ddp_arguments.names import OF_TOKENS, OWN_MODELS


def ddp_conflict(arguments: argparse.Namespace) -> str:
    """Say which arguments do not go together, as argparse would; "" where all do."""
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
        return f"argument --model: {model} does not learn from --dataset {dataset}; {fitting}"
    if arguments.parallel == "fsdp" and model != "gpt":
        return f"argument --parallel: fsdp is for --model gpt, not {model}"
    if arguments.parallel == "fsdp" and arguments.precision == "fp16":
        return "argument --precision: fp16 does not go with --parallel fsdp; choose bf16"
    if model == "gpt" and arguments.width % arguments.heads:
        return f"argument --width: {arguments.width} is no multiple of --heads {arguments.heads}"
    if dataset == "tokens" and arguments.token_bytes != "1" and not arguments.vocabulary:
        return "argument --vocabulary: say how many tokens there are where they are no bytes (GPT-2's: 50257)"
    return ""
