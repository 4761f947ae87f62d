"""The panes of home beside the list of jobs: the strip of nodes, and what the job under the cursor says.

They draw what they are shown and know no screen; only the job's pane asks the cluster, while it is in sight.
"""
