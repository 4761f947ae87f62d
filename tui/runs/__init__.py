"""Runs: what a job or a folder of files left behind, to look at and to compare.

Below `tui.feeds`: sends no requests, knows no widget.
"""
