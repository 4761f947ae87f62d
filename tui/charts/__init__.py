"""Curves as text: reading a million points, choosing what to draw, dots and ticks.

Pure: knows no widget, no file and no job.
"""
