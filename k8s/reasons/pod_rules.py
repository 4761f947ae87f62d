"""Rules about what pods need, the same for the pods of a job that waits and of a manifest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from k8s.models import PodSpec
from k8s.models.namespace import Claim, Quota
from k8s.reasons import requests
from k8s.reasons.cause import ERROR, REFUSED, Cause, Fact, error
from k8s.reasons.objects import LimitRange, LimitRangeItem, LocalQueue, StorageClass
from k8s.reasons.phrases import amount, bare_amount, cut
from k8s.reasons.requests import Amount, ResourceList

# Field that sets an amount; the GPUs' for all other resources.
_FIELDS = {"cpu": "cpu", "memory": "memory", requests.PODS: "workers"}
# Names of existing objects in advice.
_MOST_CHOICES = 5


def claim_cause(
    name: str,
    claim: Claim | None,
    namespace: str,
    classes: Mapping[str, StorageClass | None],
    choices: Iterable[str] = (),
) -> Cause | None:
    """Return the reason why pods cannot mount a volume claim; None if they can.

    Args:
        name: Name of the claim.
        claim: The claim, or one as it would be created; None if there is none.
        namespace: Namespace of the claim.
        classes: Storage classes by name, None for one that does not exist; unreadable ones are absent.
        choices: Names of the storage classes to choose from; empty if they are unknown.
    """
    waits = f"Waits for volume claim {name}"
    if claim is None:
        return missing_object("volume claim", name, namespace, "See those that exist: gpuconsole data list")
    if claim.state in ("Lost", "Terminating"):
        volume = " ".join(filter(None, ("whose volume", claim.spec.volume_name)))
        why = f"{volume} is lost" if claim.state == "Lost" else "which is being deleted"
        return Cause(f"{waits}, {why}.", help=("Use another claim.",), severity=ERROR)
    if claim.status.phase == "Bound" or not claim.status.phase:
        return None
    class_name = claim.spec.storage_class_name
    storage = classes.get(class_name)
    facts = (Fact("claim", f"{name} is {claim.status.phase}, storage class {class_name or 'none'}"),)
    if class_name and class_name in classes and storage is None:
        sentence = f"{waits}: there is no storage class {class_name}."
        advice = "Create the claim again, with a storage class that exists."
        return Cause(sentence, facts, (_choose(choices) or advice,), severity=ERROR)
    if storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer":
        return None  # it is bound when a pod is placed, so that it keeps none from being placed
    if not class_name:
        sentence = f"{waits}: no volume is bound to it, and it names no storage class."
        advice = "Create a volume for the claim, or the claim again with a storage class."
        return Cause(sentence, facts, (_choose(choices) or advice,))
    made_by = f", made by {storage.provisioner}" if storage is not None and storage.provisioner else ""
    sentence = f"{waits}: no volume is bound to it (storage class {class_name}{made_by})."
    return Cause(sentence, facts, (f"See what its events say: kubectl describe pvc {name}",))


def missing_object(kind: str, name: str, namespace: str, *further: str) -> Cause:
    """Return the cause that pods need a claim, Secret or ConfigMap that does not exist."""
    sentence = f"Waits for {kind} {name}, which does not exist in {namespace}."
    return Cause(sentence, help=("Create it, or name one that exists.", *further), severity=ERROR)


def missing_key(kind: str, owner: str, key: str, keys: Iterable[str] = ()) -> Cause:
    """Return the cause that pods need a key that a Secret or ConfigMap lacks; `keys` are those it has."""
    known = ", ".join(sorted(keys)[:_MOST_CHOICES])
    advice = f"Name one of its keys: {known}." if known else f"Add the key to the {kind}, or name another."
    return Cause(f"Waits for key {key} of {owner}, which has no such key.", help=(advice,), severity=ERROR)


def missing_name(kind: str, name: str, choices: Iterable[str] = ()) -> Cause:
    """Return the cause that pods name a PriorityClass or account that does not exist; the job is accepted."""
    sentence = f"Its pods cannot be created: there is no {kind} {name}."
    advice = _choose(choices) or f"Create the {kind}, or name one that exists."
    return Cause(sentence, help=(advice,), severity=ERROR)


def gang_cause(pods: int, state: str) -> Cause:
    """Return the cause that pods start together or not at all; `state` says what keeps them."""
    together = f"{pods} must start together, " if pods > 1 else ""
    advice = "Wait until all of them fit at once, or use fewer or smaller pods."
    return Cause(f"Waits for its gang: {together}{state}.", help=(advice,))


def no_namespace(name: str) -> Cause:
    """Return the cause that a job's namespace does not exist."""
    return error("namespace", f"{REFUSED}there is no namespace {name}", "choose one that exists")


def taken_name(kind: str, name: str, namespace: str) -> Cause:
    """Return the cause that the name of an object is used by another."""
    text = f"{REFUSED}{kind} {name} already exists in {namespace}"
    return error("name", text, "choose another name, or delete that one first", f"{kind} {name}")


def queue_cause(name: str, queue: LocalQueue | None, namespace: str) -> Cause | None:
    """Return the reason why a queue of Kueue admits no job; None if it does.

    Args:
        name: Name of the LocalQueue.
        queue: The LocalQueue; None if it does not exist.
        namespace: Namespace of the job.
    """
    if queue is None:
        sentence = f"Waits in queue {name}: there is no such LocalQueue in namespace {namespace}."
        advice = ("Name a queue that exists, or ask an administrator for one.",)
        return Cause(sentence, help=advice, severity=ERROR)
    for condition in queue.status.conditions or ():
        if condition.type == "Active" and condition.status != "True":
            why = cut(condition.message) or condition.reason or "it is not active"
            sentence = f"Waits in queue {name}, which admits nothing: {why}."
            return Cause(sentence, help=("Choose another queue, or ask an administrator.",))
    return None


def quota_causes(
    quota: Quota, missing: Mapping[str, ResourceList], together: Iterable[ResourceList], namespace: str
) -> Iterator[Cause]:
    """Yield a cause for each resource of which a quota has too little left for pods.

    Args:
        quota: The quota with its usage; one that counts only some pods is skipped.
        missing: Requests of the pods to be created, by name.
        together: Requests of the pods that must run at once, created or not.
        namespace: Namespace of the quota.
    """
    at_once, name = list(together), quota.metadata.name
    wanted, needed = requests.add(missing.values()), requests.add(at_once)
    hard, used = requests.from_quantities(quota.status.hard), requests.from_quantities(quota.status.used)
    for key, limit in hard.items() if not (quota.spec.scopes or quota.spec.scope_selector) else ():
        resource = counted_resource(key)
        want, left = wanted.get(resource, 0), limit - used.get(key, 0)
        is_never = needed.get(resource, 0) > limit
        if not is_never and (not want or want <= left):
            continue
        total = needed[resource] if is_never else want
        number = sum(resource in pod for pod in (at_once if is_never else missing.values()))
        first = next((pod for pod, amounts in missing.items() if resource in amounts), "1 pod")
        who = f"{first} needs" if number == 1 else f"{number} pods together need"
        start = "Never starts" if is_never else "Waits for quota" + " in part" * (want > limit)
        has = f"allows {bare_amount(key, limit)}"
        if not is_never and want <= limit:
            has = f"has {bare_amount(key, left)} of {bare_amount(key, limit)} left"
        less = "Request less" if is_never else f"Request less, end other jobs in {namespace}"
        yield Cause(
            f"{start}: {who} {amount(resource, total)}; quota {name} {has}.",
            help=(f"{less}, or ask for more quota in {namespace}.",),
            severity=ERROR if is_never else "warning",
            field=field_of(resource),
        )


def field_of(resource: str) -> str:
    """Return the field of `JobSpec` that sets the amount of a resource."""
    return _FIELDS.get(resource, "gpus")


def counted_resource(key: str) -> str:
    """Return the resource that a key of a quota counts: `cpu` for `requests.cpu`."""
    return requests.PODS if key == "count/pods" else key.removeprefix("requests.").removeprefix("limits.")


def limit_causes(ranges: Iterable[LimitRange], pods: Iterable[tuple[str, PodSpec]]) -> list[Cause]:
    """Return a cause for each limit that the requests of the pods, given by name, are beyond."""
    found: dict[str, Cause] = {}
    for name, pod in pods:
        containers = [requests.of_container(each) for each in pod.containers]
        requested = {"Container": containers, "Pod": [requests.add(containers)]}
        limits = [(each.metadata.name, limit) for each in ranges for limit in each.spec.limits or ()]
        for range_name, limit in limits:
            for resource, wants, bound in _beyond(limit, requested.get(limit.type, ())):
                allows = f"LimitRange {range_name} allows {bound} a {limit.type.lower()}"
                sentence = f"Its pods cannot be created: {name} needs {amount(resource, wants)}; {allows}."
                advice = ("Request an amount within the limits.",)
                cause = Cause(sentence, help=advice, severity=ERROR, field=field_of(resource))
                found.setdefault(f"{resource} {allows}", cause)
    return list(found.values())


def _beyond(limit: LimitRangeItem, requested: Iterable[ResourceList]) -> Iterator[tuple[str, Amount, str]]:
    for amounts in requested:
        for word, bounds, sign in (("at most", limit.max, 1), ("at least", limit.min, -1)):
            for key, bound in requests.from_quantities(bounds).items():
                if key in amounts and (amounts[key] - bound) * sign > 0:
                    yield key, amounts[key], f"{word} {bare_amount(key, bound)}"


def _choose(choices: Iterable[str]) -> str:
    found = sorted(choices)[:_MOST_CHOICES]
    return f"Choose one of {', '.join(found)}." if found else ""
