"""The declaration of one field of a job: all that form, flags, templates and reference say of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from k8s.job_spec.field_types import FieldType

Section = Literal["job", "code", "resources", "launch", "storage", "environment", "scheduling", "lifecycle"]
"""Where a field stands in form and reference."""
_SECTIONS: Mapping[str, Section] = {
    "name": "job",
    "sync_mode": "code",
    "workers": "resources",
    "command": "launch",
    "mounts": "storage",
    "env": "environment",
    "priority_class": "scheduling",
    "retries": "lifecycle",
}
"""The first field of each section."""
_Value = TypeVar("_Value")
_KEY = "declaration"


@dataclass(frozen=True, slots=True)
class JobField:
    """One field of `JobSpec`."""

    name: str
    """The attribute, the form's key and the template's key."""
    title: str
    """Its label."""
    help: str
    """One sentence without a full stop."""
    section: Section
    type: FieldType
    default: Any
    flags: tuple[str, ...] = ()
    """How `submit` calls it, Arena's name first where Arena has it."""
    unit: str = ""
    """What a number counts: `pods`, `per pod`."""
    placeholder: str = ""
    """What the form shows while it is empty: an example, or what empty means."""
    is_basic: bool = False
    """The form shows it without being asked for more."""

    @property
    def default_text(self) -> str:
        """Return the default as it stands in a form."""
        return self.type.to_text(self.default)


def declare(default: _Value, help: str, type: FieldType, *, flags: str = "", **more: Any) -> _Value:
    """Return a dataclass field with its declaration.

    What follows from its name is said only where it is otherwise: `title`, and `flags` with a space between.
    """
    metadata = {_KEY: {"help": help, "type": type, "flags": tuple(flags.split()), **more}}
    made: Any = (
        dataclasses.field(default_factory=dict, metadata=metadata)
        if isinstance(default, dict)
        else dataclasses.field(default=default, metadata=metadata)
    )
    return made  # type: ignore[no-any-return]


def fields_of(spec: type) -> dict[str, JobField]:
    """Return the declarations of a dataclass's fields by name, in their order."""
    found = {}
    section: Section = "job"
    for each in dataclasses.fields(spec):
        section = _SECTIONS.get(each.name, section)
        declared = {"title": each.name.replace("_", " ").capitalize(), **each.metadata[_KEY]}
        declared["flags"] = declared["flags"] or (f"--{each.name.replace('_', '-')}",)
        default = {} if each.default is dataclasses.MISSING else each.default
        found[each.name] = JobField(name=each.name, section=section, default=default, **declared)
    return found
