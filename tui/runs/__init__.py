"""Runs: what a job or a folder of files left behind, to look at and to compare.

Curves are drawn as text here: series of a million points, downsampling, braille dots, ticks. Below
`tui.session`: sends no requests, knows no widget.
"""
