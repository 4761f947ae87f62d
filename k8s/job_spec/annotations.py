"""Annotations by which a job's objects say what no field of theirs can."""

from __future__ import annotations

TRAINER_ANNOTATION = "gpuconsole.dev/trainer"
"""On a job: name of the packaged trainer that it runs."""
LOG_DIR_ANNOTATION = "gpuconsole.dev/log-dir"
"""On a job: folder in its pods where the event files are written."""
USER_ANNOTATION = "gpuconsole.dev/user"
"""On a job: who submitted it."""
SUBMISSION_ANNOTATION = "gpuconsole.dev/submission"
"""On all that one submission created: its number."""
