"""Why a job waits, fails or restarts: one sentence, the facts below it, and what would help.

`gather` fetches what can matter for one job; everything after that is pure: `rules` is an ordered
table of `causes`, each a function from `Evidence` to a `Cause` or nothing. `pending` says it in brief
in the rows of jobs.
"""
