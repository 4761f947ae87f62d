"""Shared parts of all views: the frame, lists, and views with a feed.

Knows no particular view.
"""
