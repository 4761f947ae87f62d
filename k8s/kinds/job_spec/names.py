"""Names that readers of objects need, too: this module is quick to import."""

from __future__ import annotations

LAUNCHER = "launcher"
TRAINER_ANNOTATION = "gpuconsole.dev/trainer"
LOG_DIR_ANNOTATION = "gpuconsole.dev/log-dir"
USER_ANNOTATION = "gpuconsole.dev/user"
SUBMISSION_ANNOTATION = "gpuconsole.dev/submission"
