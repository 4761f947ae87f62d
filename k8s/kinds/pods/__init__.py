"""The parts of a job's pods, each from the spec to the pod template and back.

One file a subject; only `to_manifest`, `from_manifest` and the kinds import them.
"""
