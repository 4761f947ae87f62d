"""The networks that can be trained: small ones of our own, a GPT, and torchvision's.

They turn a batch into logits; nothing here knows of ranks, precision or optimizers.
"""

from trainer.ddp.models.make import make_model

__all__ = ["make_model"]
