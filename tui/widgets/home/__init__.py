"""The panes of home around the job list: the node bar and the job pane.

They know no screen; only the visible job pane sends requests to the cluster.
"""
