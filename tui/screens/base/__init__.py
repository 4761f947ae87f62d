"""What every view shares: the frame, lists, and views that keep a feed.

Knows no particular view.
"""
