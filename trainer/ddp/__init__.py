"""Parts of `trainer.train_ddp`: data sets, networks, a training step, its figures, and checkpoints.

They do not know the command line or the loop, except `datasets` and `train_state`, which read arguments.
"""
