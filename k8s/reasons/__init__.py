"""Causes that keep a job from starting or end it, whether it exists or not.

`gather` fetches the objects that matter for one job; everything after it is pure. `rules` is an
ordered table of `causes`, each a function from `Evidence` to a `Cause` or None. `cluster_checks` and
`static_checks` find the causes before a job is created, by the same `pod_rules` and `shortage`;
`pending` puts the short form in the rows of jobs.
"""
