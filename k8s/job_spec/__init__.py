"""What a training job is to be, whatever kind it becomes: one declaration per field.

Form, flags, templates and the reference page are made from the declarations, objects by the kinds.
"""

from k8s.job_spec.annotations import (
    LOG_DIR_ANNOTATION,
    SUBMISSION_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
)
from k8s.job_spec.declaration import JobField, Section
from k8s.job_spec.job_files import NO_FILES, JobFiles
from k8s.job_spec.parts import ACCESS_MODES, ConfigFile, EnvSource, HostMount, Mount, NewClaim, PodToleration
from k8s.job_spec.roles import LAUNCHER, Role, role_named, role_sizes, role_spec, specs_by_role, wants_gpus
from k8s.job_spec.rules import LONGEST_NAME, is_below
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
    "is_below",
    "role_named",
    "role_sizes",
    "role_spec",
    "specs_by_role",
    "wants_gpus",
]
