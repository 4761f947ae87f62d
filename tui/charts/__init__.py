"""Curves as text: series of a million points, downsampling, braille dots, ticks.

Knows no widget, file or job.
"""
