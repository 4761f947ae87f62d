"""Causes that keep a job from starting or end it, whether it exists or not.

`gather` fetches the objects that matter for one job; everything after it is pure. `rules` is an
ordered table of `causes`, each a function from `Evidence` to a `Cause` or None. `checks` find the
causes before a job is created; `pending` puts the short form in the rows of jobs.
"""
