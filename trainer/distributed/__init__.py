"""Shared parts of the trainers that use torch: process group, device, outputs and exit status.

Nothing here knows a particular trainer.
"""
