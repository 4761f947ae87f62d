"""Pods that have a node do not run on it: the node, the image, a volume, an init container."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from k8s.models import ContainerStatus, Terminated
from k8s.models.event import Event
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.evidence import Evidence
from k8s.reasons.failures import ContainerLog, triage
from k8s.reasons.failures.causes import NEVER_STARTED
from k8s.reasons.phrases import count, cut, names, seconds_between, span, verb
from k8s.reasons.pod_rules import missing_key, missing_object
from k8s.reasons.predicates import is_ready
from k8s.snapshot import Instance
from k8s.status import Status
from k8s.status.pod import PULL_REASONS, exit_text
from k8s.text.lazy_pattern import lazy_pattern

# These init containers of operators only wait until the master's name resolves.
_MASTER_INITS = ("init-pytorch",)
CODE_INITS = ("init-code",)
_LOST = ("", "Unknown")


def node_lost(evidence: Evidence) -> Cause | None:
    """Detect a node of the job's pods that does not answer, or is gone."""
    if evidence.nodes is None:
        return None
    nodes = {node.metadata.name: node for node in evidence.nodes}
    for instance in evidence.unstarted:
        node = nodes.get(instance.node)
        if node is not None and is_ready(node):
            continue
        bound = [each.name for each in evidence.unfinished if each.node == instance.node]
        who = f"{names(bound)} {verb(bound, 'is', 'are')} bound to it"
        ready = next(
            (each for each in (node.status.conditions if node else None) or () if each.type == "Ready"), None
        )
        if node is None:
            how = "which is no longer there"
        elif ready is None or ready.status in _LOST:
            since = span(seconds_between(ready.since, evidence.now)) if ready is not None else ""
            how = f"which has not answered for {since}" if since else "which does not answer"
        else:
            how = "which is not ready"
        fact = (
            (
                Fact(
                    "nodes", f"{instance.node}: Ready is {ready.status}: {cut(ready.message) or ready.reason}"
                ),
            )
            if ready is not None
            else ()
        )
        return Cause(
            f"Waits for node {instance.node}, {how}: {who}.",
            fact,
            (
                f"Ask an administrator about {instance.node}; or delete the job and submit it again, "
                "so that its pods go elsewhere.",
            ),
        )
    return None


def image(evidence: Evidence) -> Cause | None:
    """Detect an image that cannot be pulled."""
    for instance in evidence.unstarted:
        for status, _ in evidence.containers(instance):
            waiting = status.state.waiting
            if waiting is None or waiting.reason not in PULL_REASONS:
                continue
            message = _describe_pull(evidence, instance, waiting.message)
            what = evidence.image_of(instance, status.name) or "its image"
            same = [
                each.name
                for each in evidence.unstarted
                if any(
                    s.state.waiting and s.state.waiting.reason in PULL_REASONS
                    for s, _ in evidence.containers(each)
                )
            ]
            where = f"{names(same)} on {names(e.node for e in evidence.unstarted if e.name in same)}"
            why, advice = _pull_cause(waiting.reason, message)
            fact = Fact("image", f"{status.name}: {waiting.reason}: {message or waiting.reason}")
            missing = [name for name, found in evidence.secrets.items() if found is None]
            sentence = f"Waits for its image: {what} {why} ({where})."
            if not missing:
                return Cause(sentence, (fact,), (advice,))
            secret = missing_object("Secret", missing[0], evidence.job.ref.namespace)
            if _LOGIN not in why:
                return Cause(sentence, (fact, Fact("image", secret.sentence)), (*secret.help, advice))
            return replace(secret, facts=(Fact("image", sentence), fact))
    return None


def _describe_pull(evidence: Evidence, instance: Instance, message: str) -> str:
    # While the kubelet backs off, only the earlier message gives the reason.
    if message and not message.startswith("Back-off pulling image"):
        return cut(message)
    failed = evidence.events_of("Pod", "Failed", names={instance.pod})
    pull_error = next(
        (event.message for event in failed if (event.message or "").startswith("Failed to pull")), ""
    )
    return cut(pull_error or message)


def _pull_cause(reason: str, message: str) -> tuple[str, str]:
    for pattern, why, advice in _PULLS:
        if pattern.search(f"{reason} {message}"):
            return why, advice
    return "cannot be pulled", "See the kubelet's message below."


_LOGIN = "needs a login"
# Messages of kubelets and registries, the problem with the image, and advice; the first match wins.
_PULLS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (lazy_pattern(pattern, re.IGNORECASE), why, advice)
    for pattern, why, advice in (
        (
            r"ErrImageNeverPull",
            "is not on the node, and imagePullPolicy Never forbids pulling it",
            "Set imagePullPolicy to IfNotPresent, or load the image on the node.",
        ),
        (r"InvalidImageName", "is not a valid image name", "Correct the image's name."),
        (
            r"may require authori[sz]ation|insufficient_scope",
            f"does not exist, or {_LOGIN}",
            "Check its name and tag; if it is private, name an image pull secret.",
        ),
        (
            r"unauthorized|authentication required|403 Forbidden|401 |access denied|no basic auth|denied:",
            _LOGIN,
            "Name an image pull secret that may read it.",
        ),
        (
            r"not found|manifest unknown|NotFound|no such image|name unknown",
            "does not exist",
            "Check its name and tag.",
        ),
        (
            r"toomanyrequests|rate limit",
            "was pulled too often: the registry limits pulls",
            "Wait, or use a mirror.",
        ),
        (
            r"no such host|i/o timeout|dial tcp|connection refused|deadline exceeded|x509|TLS",
            "cannot be pulled: its registry cannot be reached",
            "Check the registry's name; ask an administrator whether nodes may reach it.",
        ),
        (r"no space left", "cannot be pulled: the node's disk is full", "Ask an administrator."),
    )
)


def config(evidence: Evidence) -> Cause | None:
    """Detect a container that cannot be created: a ConfigMap, a Secret or a command is missing."""
    for instance in evidence.unstarted:
        for status, _ in evidence.containers(instance):
            waiting = status.state.waiting
            if waiting is None or waiting.reason not in NEVER_STARTED:
                continue
            message = cut(waiting.message)
            if missing := _missing_object(evidence, instance, message):
                fact = Fact("pods", f"{instance.name}: {status.name}: {waiting.reason}: {message}")
                return replace(missing, facts=(fact,))
            # The runtime's messages are those of containers that ended before they began.
            log = ContainerLog(
                instance.name, exit_code=128, end_reason=waiting.reason, message=waiting.message
            )
            found = triage([log], evidence.causes)
            cause = found.cause if found is not None else None
            known = (Fact("cause", cause.name),) if found and cause and found.saw != waiting.reason else ()
            return Cause(
                f"Cannot start {instance.name}: {message or waiting.reason}.",
                (Fact("pods", f"{status.name}: {waiting.reason}"), *known),
                (found.remedy,) if found is not None and found.remedy else (),
            )
    return None


_NO_OBJECT = lazy_pattern(r"(configmap|secret) \"([^\"]+)\" not found", re.IGNORECASE)
_NO_KEY = lazy_pattern(r"couldn't find key (\S+) in (ConfigMap|Secret) [^/\s]*/(\S+)")
_NO_KEY_OF_VOLUME = lazy_pattern(r"for volume \"([^\"]+)\".*non-existent (config|secret) key: (\S+)")
_KINDS = {"configmap": "ConfigMap", "config": "ConfigMap", "secret": "Secret"}


def _missing_object(evidence: Evidence, instance: Instance, message: str) -> Cause | None:
    # Source: the kubelet's `makeEnvironmentVariables` and its ConfigMap, Secret and projected volumes.
    if found := _NO_OBJECT.search(message):
        return missing_object(_KINDS[found[1].lower()], found[2], evidence.job.ref.namespace)
    if found := _NO_KEY.search(message):
        key, kind, name = found.groups()
        return missing_key(kind, f"{kind} {name}", key)
    if not (found := _NO_KEY_OF_VOLUME.search(message)):
        return None
    volume, kind, key = found[1], _KINDS[found[2]], found[3]
    volumes = evidence.spec(instance).volumes or ()
    sources = (each.config_map or each.secret for each in volumes if each.name == volume)
    source = next(filter(None, sources), None)
    owner = f"{kind} {source.name or source.secret_name}" if source else f"the {kind} of volume {volume}"
    return missing_key(kind, owner, key)


def mounts(evidence: Evidence) -> Cause | None:
    """Detect a volume that cannot be mounted, or a pod network that cannot be set up."""
    starting = {each.pod: each for each in evidence.unstarted if not _has_begun(evidence, each)}
    events = evidence.events_of("Pod", *_NODE_TROUBLES, names=set(starting))
    # After two minutes of retries a kubelet adds an event that names the volumes only.
    for event in sorted(
        events, key=lambda each: (each.message or "").startswith("Unable to attach or mount")
    ):
        about = _NODE_TROUBLES[next(each for each in _NODE_TROUBLES if (event.reason or "").startswith(each))]
        instance = starting[event.involved_object.name]
        message = cut(event.message)
        if missing := _missing_object(evidence, instance, message):
            fact = Fact("event", f"{instance.name}: {event.reason}: {message}, {_times(event)}")
            return replace(missing, facts=(fact,))
        return Cause(
            f"Waits for {about} on {instance.node}: {message} ({instance.name}).",
            (Fact("event", f"{event.reason}, {_times(event)}"),),
        )
    return None


# Prefixes of the reasons of kubelet events, to what the pod waits for.
_NODE_TROUBLES: Mapping[str, str] = {
    "FailedMount": "its volumes",
    "FailedAttachVolume": "its volumes",
    "FailedMapVolume": "its volumes",
    "FailedCreatePodSandBox": "its network",
    "NetworkNotReady": "its network",
}


def _times(event: Event) -> str:
    return count(event.count or 1, "time")


def _has_begun(evidence: Evidence, instance: Instance) -> bool:
    return any(
        status.state.running is not None or status.state.terminated is not None
        for status, _ in evidence.containers(instance)
    )


def init(evidence: Evidence) -> Cause | None:
    """Detect an init container that failed or still runs."""
    waiting_for_master: list[Instance] = []
    for instance in evidence.unstarted:
        status = _current_init(evidence, instance)
        if status is None:
            continue
        if status.name in _MASTER_INITS and _last_end(status) is None:
            waiting_for_master.append(instance)
            continue
        return _init_cause(evidence, instance, status)
    if not waiting_for_master:
        return None
    chief = next((each for each in evidence.job.instances if each.is_chief), None)
    how = f"{chief.name} is {chief.status}" if chief is not None else "there is none"
    because = f": {cut(chief.reason)}" if chief is not None and chief.reason else ""
    who = names(each.name for each in waiting_for_master)
    looks = verb(waiting_for_master, "looks", "look")
    return Cause(
        f"Waits for the master: {who} {looks} for its name; {how}{because}.",
        (Fact("pods", f"init container {_MASTER_INITS[0]} runs until the master's name can be resolved"),),
        ("If the master runs, ask an administrator about the cluster's DNS.",)
        if chief is not None and chief.status is Status.RUNNING
        else (),
    )


def _current_init(evidence: Evidence, instance: Instance) -> ContainerStatus | None:
    for status, is_init in evidence.containers(instance):
        if not is_init:
            return None
        state = status.state
        if state.terminated is not None and state.terminated.exit_code == 0:
            continue
        has_begun = state.running is not None or state.terminated is not None or bool(status.restart_count)
        sidecar = any(
            each.name == status.name and each.restart_policy == "Always"
            for each in evidence.spec(instance).init_containers or ()
        )
        if sidecar and state.running is not None:
            continue
        return status if has_begun else None
    return None


def _last_end(status: ContainerStatus) -> Terminated | None:
    return status.state.terminated or status.last_state.terminated


def _init_cause(evidence: Evidence, instance: Instance, status: ContainerStatus) -> Cause:
    ended = _last_end(status)
    fetch = (
        "The code cannot be fetched" if status.name in CODE_INITS else f"Init container {status.name} fails"
    )
    log = f"See what it printed: gpuconsole logs {evidence.job.ref.name} -i {instance.name} -c {status.name}"
    if ended is not None:
        message = f": {cut(ended.message)}" if ended.message else ""
        times = f", {count(status.restart_count, 'restart')} so far" if status.restart_count else ""
        return Cause(
            f"{fetch}: {status.name} of {instance.name} ended with {exit_text(ended)}{times}{message}.",
            (),
            (log,),
        )
    running = status.state.running
    since_s = seconds_between(running.started_at, evidence.now) if running is not None else 0.0
    doing = "has been fetching the code" if status.name in CODE_INITS else "has been running"
    return Cause(
        f"Waits for init container {status.name}, which {doing} in {instance.name} for {span(since_s)}.",
        (),
        (log,),
    )


def starting(evidence: Evidence) -> Cause | None:
    """Detect pods that their nodes are starting."""
    bound = [
        each
        for each in evidence.unstarted
        if each.status in (Status.STARTING, Status.PENDING, Status.UNKNOWN)
    ]
    if not bound:
        return None
    pulling = [
        each.name
        for each in bound
        if (last := next(iter(evidence.events_of("Pod", "Pull", names={each.pod})), None))
        and last.reason == "Pulling"
    ]
    if pulling:
        images = {evidence.image_of(each, name) for each in bound for name in each.containers[:1]}
        return Cause(
            f"Pulls its image: {names(pulling)} {verb(pulling, 'waits', 'wait')} for {names(sorted(images))}."
        )
    which = names(each.name for each in bound)
    reason = next((cut(each.reason) for each in bound if each.reason), "")
    return Cause(
        f"Is being started: {which} on {names(each.node for each in bound)}{f'; {reason}' if reason else ''}."
    )
