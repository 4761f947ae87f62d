"""The views of one job: its panes, logs and curves.

They show what their feeds publish and ask the app for everything else.
"""
