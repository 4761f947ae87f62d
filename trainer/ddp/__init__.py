"""Trains an image classifier with DistributedDataParallel.

Nothing outside imports it at import time, so that signals and wrong arguments are answered at once.
"""
