"""Trains an image classifier with DistributedDataParallel; the one room of trainer that imports torch.

Nothing outside it does at import time, so that signals and wrong arguments are answered at once.
"""
