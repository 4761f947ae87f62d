"""Parts of `trainer.train_ddp`: data sets, networks, a training step, its figures, and checkpoints.

They do not know the loop.
"""
