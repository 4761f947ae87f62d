"""The form's manifest with the user's edits, which are kept when the form changes.

A three-way merge: the previous manifest, its edited version, the new manifest. Where both sides changed
the same place, the edit wins, and a comment on its line shows the form's value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from k8s.kinds import Manifest
from k8s.text.sanitize import sanitize
from k8s.text.yaml_writer import to_yaml
from tui.draft.manifest_yaml import Loader, read_manifest
from tui.text.cells import elide_end

LONGEST_MARK = 60
Path = tuple[str | int, ...]
_ABSENT = object()


class ManifestEdits:
    """Text of a manifest, from the form and from the user."""

    def __init__(self) -> None:
        """Start with an empty manifest."""
        self.text = ""
        """The text as shown and edited; may be invalid YAML while the user types."""
        self.problem = ""
        self.conflicts: dict[Path, object] = {}
        """Places where an edit and the form differ, with the form's value."""
        self._base: Manifest = {}
        self._made: Manifest = {}
        self._edited: Manifest = {}

    @property
    def is_edited(self) -> bool:
        """True if the text differs from the form's manifest."""
        return bool(self.problem) or self._edited != self._base

    @property
    def manifest(self) -> Manifest:
        """The manifest as edited.

        Raises:
            ValueError: The text is not a manifest; the message says where.
        """
        if self.problem:
            raise ValueError(self.problem)
        return self._edited

    def merger(self) -> Callable[[Manifest], Manifest]:
        """Return a function that applies the current edits to another manifest of the form.

        Raises:
            ValueError: The text is not a manifest; the message says where.
        """
        base, edited = self._base, self.manifest

        def merge(made: Manifest) -> Manifest:
            merged = merge_changes(base, edited, made, (), {})
            return merged if isinstance(merged, dict) else made

        return merge

    def make(self, manifest: Manifest) -> None:
        """Merge the form's new manifest; while the text is invalid, it waits."""
        self._made = manifest
        if self.problem or manifest == self._base:
            return
        found: dict[Path, object] = {}
        merged = merge_changes(self._base, self._edited, manifest, (), found)
        still = {path: _at(manifest, path) for path in self.conflicts}
        found |= {path: value for path, value in still.items() if _at(merged, path) != value}
        self._base, self.conflicts = manifest, found
        self._edited = merged if isinstance(merged, dict) else manifest
        self.text = _marked(to_yaml(self._edited), found)

    def edit(self, text: str) -> None:
        """Set the text as edited."""
        self.text = text
        try:
            self._edited = read_manifest(text)
        except ValueError as error:
            self.problem = str(error)
        else:
            self.problem = ""
            self.conflicts = {
                path: value for path, value in self.conflicts.items() if _at(self._edited, path) != value
            }

    def settle(self) -> None:
        """Merge the form's changes since the edit began."""
        self.make(self._made)

    def discard(self) -> None:
        """Discard the edits."""
        self._base, self._edited = self._made, self._made
        self.problem, self.conflicts, self.text = "", {}, to_yaml(self._made)


def merge_changes(base: Any, edited: Any, made: Any, path: Path, conflicts: dict[Path, object]) -> Any:
    """Merge two changes of `base`; where both changed the same place, `edited` wins.

    Args:
        base: The common ancestor; `_ABSENT` stands for what is not there, in all three.
        edited: One version.
        made: The other version.
        path: Place of the values in their document.
        conflicts: Receives the places that both changed, with the value of `made`.
    """

    def merge(step: str | int, key: str, *parts: Mapping[str, Any]) -> Any:
        before, ours, theirs = (each.get(key, _ABSENT) for each in parts)
        return merge_changes(before, ours, theirs, (*path, step), conflicts)

    if edited in (base, made):
        return made
    if made == base:
        return edited
    if all(isinstance(each, dict) for each in (base, edited, made)):
        keys = [*made, *(key for key in edited if key not in made)]
        found = {key: merge(key, key, base, edited, made) for key in keys}
        return {key: value for key, value in found.items() if value is not _ABSENT}
    if all(isinstance(each, list) for each in (base, edited, made)):
        if len(base) == len(edited) == len(made):
            numbered = enumerate(zip(base, edited, made, strict=True))
            return [merge_changes(*each, (*path, number), conflicts) for number, each in numbered]
        if (named := _by_name(base, edited, made)) is not None:
            names = [*named[2], *(name for name in named[1] if name not in named[2])]
            items = [merge(number, name, *named) for number, name in enumerate(names)]
            return [item for item in items if item is not _ABSENT]
    conflicts[path] = made
    return edited


def _by_name(*lists: Sequence[Any]) -> list[dict[str, Any]] | None:
    found = []
    for items in lists:
        if not all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items):
            return None
        found.append({item["name"]: item for item in items})
        if len(found[-1]) != len(items):
            return None
    return found


def _at(value: Any, path: Path) -> object:
    for step in path:
        is_there = (isinstance(value, Mapping) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if not is_there:
            return _ABSENT
        value = value[step]
    return value


def _marked(text: str, conflicts: Mapping[Path, object]) -> str:
    if not conflicts:
        return text
    lines = text.split("\n")
    places = dict(_places(yaml.compose(text, Loader), ()))
    for path, value in conflicts.items():
        nearest = path
        while nearest and nearest not in places:
            nearest = nearest[:-1]
        number = places.get(nearest, 0)
        name = "" if nearest == path else f"{'.'.join(map(str, path[len(nearest) :]))}: "
        shown = "nothing" if value is _ABSENT else f"{name}{json.dumps(value, ensure_ascii=False)}"
        lines[number] += f"  # the form says {elide_end(sanitize(shown), LONGEST_MARK)}"
    return "\n".join(lines)


def _places(node: yaml.Node | None, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line
            yield from _places(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield (*path, number), value.start_mark.line
            yield from _places(value, (*path, number))
