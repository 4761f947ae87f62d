"""Measures how many images a second a network trains on, with images that are random numbers.

Nothing outside imports it at import time, so that signals and wrong arguments are answered at once.
"""
