"""Declaration of a training job's fields, independent of its kind.

Form, flags, templates and the reference page are generated from the declarations; kinds turn
them into objects. The modules are imported on first use: reading jobs needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

LAUNCHER = "launcher"
TRAINER_ANNOTATION = "gpuconsole.dev/trainer"
LOG_DIR_ANNOTATION = "gpuconsole.dev/log-dir"
USER_ANNOTATION = "gpuconsole.dev/user"
SUBMISSION_ANNOTATION = "gpuconsole.dev/submission"

if TYPE_CHECKING:
    from k8s.kinds.job_spec.field_types import JobField, Section
    from k8s.kinds.job_spec.parts import (
        ACCESS_MODES,
        NO_FILES,
        ConfigFile,
        EnvSource,
        HostMount,
        JobFiles,
        Mount,
        NewClaim,
        PodToleration,
        Role,
    )
    from k8s.kinds.job_spec.rules import (
        LONGEST_NAME,
        apply_role,
        is_below,
        problems_of,
        role_named,
        role_sizes,
        role_spec,
        wants_gpus,
    )
    from k8s.kinds.job_spec.spec import JOB_FIELDS, JobSpec
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for module in ("spec", "rules", "parts", "field_types"):
                found = import_module(f"k8s.kinds.job_spec.{module}")
                if hasattr(found, name):
                    return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ACCESS_MODES", "JOB_FIELDS", "LAUNCHER", "LOG_DIR_ANNOTATION", "LONGEST_NAME", "NO_FILES",
    "SUBMISSION_ANNOTATION", "TRAINER_ANNOTATION", "USER_ANNOTATION", "ConfigFile", "EnvSource",
    "HostMount", "JobField", "JobFiles", "JobSpec", "Mount", "NewClaim", "PodToleration", "Role",
    "Section", "apply_role", "is_below", "problems_of", "role_named", "role_sizes", "role_spec",
    "wants_gpus",
]  # fmt: skip
