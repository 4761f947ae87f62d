"""Measurement of training throughput on random images.

Nothing outside imports it at import time, so that signals and wrong arguments are answered at once.
"""
