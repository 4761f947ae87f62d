"""Declaration of a training job's fields, independent of its kind.

Form, flags, templates and the reference page are generated from the declarations; kinds turn
them into objects.
"""

from k8s.job_spec.field_types import JobField, Section
from k8s.job_spec.parts import (
    ACCESS_MODES,
    LOG_DIR_ANNOTATION,
    NO_FILES,
    SUBMISSION_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
    ConfigFile,
    EnvSource,
    HostMount,
    JobFiles,
    Mount,
    NewClaim,
    PodToleration,
)
from k8s.job_spec.roles import LAUNCHER, Role
from k8s.job_spec.rules import (
    LONGEST_NAME,
    apply_role,
    is_below,
    problems_of,
    role_named,
    role_sizes,
    role_spec,
    specs_by_role,
    wants_gpus,
)
from k8s.job_spec.spec import JOB_FIELDS, JobSpec

__all__ = [
    "ACCESS_MODES",
    "JOB_FIELDS",
    "LAUNCHER",
    "LOG_DIR_ANNOTATION",
    "LONGEST_NAME",
    "NO_FILES",
    "SUBMISSION_ANNOTATION",
    "TRAINER_ANNOTATION",
    "USER_ANNOTATION",
    "ConfigFile",
    "EnvSource",
    "HostMount",
    "JobField",
    "JobFiles",
    "JobSpec",
    "Mount",
    "NewClaim",
    "PodToleration",
    "Role",
    "Section",
    "apply_role",
    "is_below",
    "problems_of",
    "role_named",
    "role_sizes",
    "role_spec",
    "specs_by_role",
    "wants_gpus",
]
