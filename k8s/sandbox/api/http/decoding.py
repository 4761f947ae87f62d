"""Bodies from bytes to values, in bounds: a small body may neither nest without end nor multiply itself.

A real server has the same bounds, from Go's decoder and go-yaml, and answers 400 too.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import msgspec
import yaml

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError

DEEPEST = 100
"""Levels of objects and lists in a body; those of a pod template are about fifteen."""
MOST_REPEATED_BYTES = 512 * 1024
"""By how much a document's aliases may make it larger than it was sent, about."""
LONGEST_NUMBER = 100
"""Letters of a number in YAML; reading takes the square of them."""
_NODE_BYTES = 16
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_LEVELS = bytes.maketrans(b"{[]}", b"\1\1\0\0")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{[]}"))


class _OutOfBounds(ValueError):
    """A body that would cost too much."""


class BoundedLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it, where times stay text, and that ends when it goes out of bounds."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0
        self._repeated_bytes = 0
        self._sizes: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read the next node; count what it is, written out, before anybody writes it out."""
        is_alias = self.check_event(yaml.AliasEvent)
        self._depth += 1
        _check_depth(self._depth - 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if not is_alias:
            self._sizes[id(node)] = self._measure(node)
            return node
        if id(node) not in self._sizes:
            raise _OutOfBounds("yaml: an anchor contains itself")
        size, height = self._sizes[id(node)]
        _check_depth(self._depth + height)
        self._repeated_bytes += size
        if self._repeated_bytes > MOST_REPEATED_BYTES:
            raise _OutOfBounds("yaml: document contains excessive aliasing")
        return node

    def _measure(self, node: yaml.Node) -> tuple[int, int]:
        """Return how large a node is, and how many levels it has."""
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > LONGEST_NUMBER and node.tag.endswith((":int", ":float")):
                raise _OutOfBounds("yaml: a number is too long")
            return len(node.value) + _NODE_BYTES, 0
        pairs = isinstance(node, yaml.MappingNode)
        members = [each for pair in node.value for each in pair] if pairs else node.value
        sizes = [self._sizes[id(each)] for each in members]
        below = max((height for _, height in sizes), default=0)
        return sum(size for size, _ in sizes) + _NODE_BYTES, below + 1


BoundedLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_json(body: bytes, kind: str) -> Any:
    """Decode JSON; `kind` is what it should be, for the message.

    Raises:
        ApiError: It is no JSON, or deeper than `DEEPEST`.
    """
    try:
        return _json(body)
    except (_OutOfBounds, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unrecognized(kind, error) from error


def from_yaml(body: bytes, kind: str) -> Any:
    """Decode YAML to what JSON could say; may take seconds for a long document.

    Raises:
        ApiError: It is no YAML, or out of bounds.
    """
    try:
        if body.lstrip().startswith(b"{"):
            try:
                return _json(body)  # as kubectl sends it, and read a hundred times faster
            except msgspec.DecodeError:
                pass
        return msgspec.json.decode(msgspec.json.encode(yaml.load(body, Loader=BoundedLoader)))
    except (
        *(_OutOfBounds, yaml.YAMLError, msgspec.MsgspecError, RecursionError),
        # What PyYAML's constructors raise for `!!int x`, `!!bool x`, `!!timestamp x`.
        *(ValueError, LookupError, AttributeError, TypeError, OverflowError),
    ) as error:
        raise _unrecognized(kind, error) from error


def _json(body: bytes) -> Any:
    if body.count(b"[") + body.count(b"{") > DEEPEST:
        brackets = _STRING.sub(b"", body).translate(_LEVELS, _NOT_BRACKETS)
        steps = (1 if bracket else -1 for bracket in brackets)
        _check_depth(max(accumulate(steps), default=0))
    return msgspec.json.decode(body)


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise _OutOfBounds("exceeded max depth")


def _unrecognized(kind: str, error: Exception) -> ApiError:
    return api_errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): "
        f"couldn't get version/kind; json parse error: {error}"
    )
