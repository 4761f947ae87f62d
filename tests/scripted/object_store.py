"""A server that stores what it is given, as an API server does; it may lose answers, or refuse.

It knows no defaults, lists, watches or wrong fields. The tests in tests/k8s/sandbox/api/conformance that are
marked `also_scripted` hold it to the answers of a real server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from k8s.sandbox.api import patches
from tests.scripted.server import Answer, Asked, Compute, Drop, Reply, ScriptedCluster, status_object

Object = dict[str, Any]


class ObjectStore:
    """Objects by their paths; give it a cluster and it answers everything."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.objects: dict[str, Object] = {}  # by path: `/api/v1/namespaces/default/configmaps/a`
        # Requests for changes, as `POST configmaps/a`, those with a lost answer included
        self.log: list[str] = []
        # Answers in place of the store, which then does nothing
        self.before: Callable[[Asked, str], Reply | None] = lambda asked, what: None
        # Answers after the store has done it
        self.after: Callable[[Asked, str], Reply | None] = lambda asked, what: None
        self._version = 0
        cluster.say_everywhere(Compute(self._answer))

    def names(self) -> list[str]:
        return sorted("/".join(path.split("/")[-2:]) for path in self.objects)

    def named(self, what: str) -> Object:
        return next(obj for path, obj in self.objects.items() if path.endswith(f"/{what}"))

    def put(self, path: str, obj: Mapping[str, Any]) -> Object:
        uid = f"uid-{self._version + 1}"
        meta = {"creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"], "uid": uid}
        if "/namespaces/" in path:
            meta["namespace"] = path.split("/namespaces/")[1].split("/")[0]
        return self._change(path, {**deepcopy(dict(obj)), "metadata": meta})

    def _change(self, path: str, obj: Object) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = obj
        return obj

    def _answer(self, asked: Asked) -> Reply:
        body = json.loads(asked.body) if asked.body else {}
        name = body["metadata"]["name"] if asked.method == "POST" else ""
        path = f"{asked.path}/{name}" if name else asked.path
        what = "/".join(path.split("/")[-2:])
        if asked.method != "GET":
            self.log.append(f"{asked.method} {what}")
        early = self.before(asked, what)
        if early is not None:
            return early
        answer = self._done(asked, path, body)
        return self.after(asked, what) or answer

    def _done(self, asked: Asked, path: str, body: Object) -> Reply:
        held = self.objects.get(path)
        if asked.method == "POST":
            if held is not None:
                return _refusal(409, path, "already exists", "AlreadyExists")
            if "dryRun" in asked.query:
                return Answer(body, 201)
            return Answer(self.put(path, body), 201)
        if held is None:
            return _refusal(404, path, "not found", "NotFound")
        if asked.method == "DELETE":
            for field, wanted in (body.get("preconditions") or {}).items():
                if wanted != held["metadata"][field]:
                    return _refusal(409, path, f"the {field} in the precondition does not match", "Conflict")
            del self.objects[path]
            return Answer({"kind": "Status", "status": "Success"})
        return Answer(self._change(path, patches.merge(held, body)) if asked.method == "PATCH" else held)


def _refusal(code: int, path: str, words: str, reason: str) -> Answer:
    """Answer with a status that names the object, as a real server does."""
    *_, plural, name = parts = path.split("/")
    group = parts[2] if parts[1] == "apis" else ""
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    kind = ".".join(filter(None, (plural, group)))
    status = status_object(code, f'{kind} "{name}" {words}', reason, **details)
    return Answer({**status, "metadata": {}}, code)


def lose(what: str, times: int = 1, method: str = "POST") -> Callable[[Asked, str], Reply | None]:
    """Return a hook that breaks the connection of so many requests for `what`."""
    left = [times]

    def hook(asked: Asked, about: str) -> Reply | None:
        if (asked.method, about) != (method, what) or not left[0]:
            return None
        left[0] -= 1
        return Drop()

    return hook
