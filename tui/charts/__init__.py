"""Curves as text: reading a million points, choosing what to draw, dots and ticks."""
