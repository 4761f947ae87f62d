"""Parts of a job's pods, each converted from the spec to the pod template.

One file per subject; only `pod_template` and the kinds import them.
"""
