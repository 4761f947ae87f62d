"""Diagnosis of a job that waits, fails or restarts: one sentence, its facts, and advice.

`gather` fetches the objects that matter for one job; everything after it is pure. `rules` is an
ordered table of `causes`, each a function from `Evidence` to a `Cause` or None. `pending` puts the
short form in the rows of jobs.
"""
