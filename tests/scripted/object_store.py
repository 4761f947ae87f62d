"""A server that stores what it is given, as an API server does; it may lose answers, or refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from tests.scripted.server import Answer, Asked, Compute, Drop, Reply, ScriptedCluster, refusal

Object = dict[str, Any]


class ObjectStore:
    """Objects by their paths; give it a cluster and it answers everything."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.objects: dict[str, Object] = {}
        """By path: `/api/v1/namespaces/default/configmaps/a`."""
        self.log: list[str] = []
        """What was done, as `POST configmaps/a`, whether the answer was lost or not."""
        self.before: Callable[[Asked, str], Reply | None] = lambda asked, what: None
        """Answers in place of the store, which then does nothing."""
        self.after: Callable[[Asked, str], Reply | None] = lambda asked, what: None
        """Answers after the store has done it."""
        self._uids = 0
        cluster.say_everywhere(Compute(self._answer))

    def names(self) -> list[str]:
        """Return what there is, as `configmaps/a`."""
        return sorted("/".join(path.split("/")[-2:]) for path in self.objects)

    def named(self, what: str) -> Object:
        """Return the object of such a name."""
        return next(obj for path, obj in self.objects.items() if path.endswith(f"/{what}"))

    def put(self, path: str, obj: Mapping[str, Any]) -> Object:
        """Store an object under a new uid."""
        self._uids += 1
        meta = {"creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"], "uid": f"uid-{self._uids}"}
        self.objects[path] = {**deepcopy(dict(obj)), "metadata": meta}
        return self.objects[path]

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
                return refusal(409, f"{path} already exists", "AlreadyExists")
            if "dryRun" in asked.query:
                return Answer(body, 201)
            return Answer(self.put(path, body), 201)
        if held is None:
            return refusal(404, f"{path} not found", "NotFound")
        if asked.method == "DELETE":
            uid = (body.get("preconditions") or {}).get("uid")
            if uid and uid != held["metadata"]["uid"]:
                return refusal(409, "the UID in the precondition does not match", "Conflict")
            del self.objects[path]
            return Answer({"kind": "Status", "status": "Success"})
        if asked.method == "PATCH":
            held["metadata"] |= body["metadata"]
        return Answer(held)


def lose(what: str, times: int = 1, method: str = "POST") -> Callable[[Asked, str], Reply | None]:
    """Return a hook that breaks the connection of so many requests for `what`."""
    left = [times]

    def hook(asked: Asked, about: str) -> Reply | None:
        if (asked.method, about) != (method, what) or not left[0]:
            return None
        left[0] -= 1
        return Drop()

    return hook
