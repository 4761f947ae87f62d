"""What the objects look like: field names and types, to refuse a body that is something else.

Only names and types are here; whether values make sense is asked in `checks`.
A field that is not in a kind's shape is dropped, as a real server does, or refused.
Source: k8s.io/api core/v1 and batch/v1 `types.go` (1.31), kubeflow.org/v1 `types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHAPES_TEXT = """
Meta        name:s generateName:s namespace:s uid:s resourceVersion:s selfLink:s generation:i
            creationTimestamp:s deletionTimestamp:s deletionGracePeriodSeconds:i labels:{s} annotations:{s}
            finalizers:[s] ownerReferences:[Owner] managedFields:[o]
Owner       apiVersion:s kind:s name:s uid:s controller:b blockOwnerDeletion:b
Amounts     limits:{q} requests:{q} claims:[o]
Env         name:s value:s valueFrom:{o}
Port        containerPort:i name:s protocol:s hostPort:i hostIP:s
Mount       name:s mountPath:s subPath:s subPathExpr:s readOnly:b recursiveReadOnly:s mountPropagation:s
Container   name:s image:s command:[s] args:[s] workingDir:s ports:[Port] envFrom:[o] env:[Env]
            resources:Amounts resizePolicy:[o] restartPolicy:s volumeMounts:[Mount] volumeDevices:[o]
            livenessProbe:o readinessProbe:o startupProbe:o lifecycle:o terminationMessagePath:s
            terminationMessagePolicy:s imagePullPolicy:s securityContext:o stdin:b stdinOnce:b tty:b
PodSpec     containers:[Container] initContainers:[Container] ephemeralContainers:[o] volumes:[Volume]
            restartPolicy:s terminationGracePeriodSeconds:i activeDeadlineSeconds:i dnsPolicy:s
            nodeSelector:{s} serviceAccountName:s serviceAccount:s automountServiceAccountToken:b nodeName:s
            hostNetwork:b hostPID:b hostIPC:b shareProcessNamespace:b securityContext:o imagePullSecrets:[o]
            hostname:s subdomain:s affinity:o schedulerName:s tolerations:[o] hostAliases:[o]
            priorityClassName:s priority:i dnsConfig:o readinessGates:[o] runtimeClassName:s
            enableServiceLinks:b preemptionPolicy:s overhead:{q} topologySpreadConstraints:[o]
            setHostnameAsFQDN:b os:o hostUsers:b schedulingGates:[o] resourceClaims:[o] resources:Amounts
Volume      name:s emptyDir:o configMap:o secret:o persistentVolumeClaim:o hostPath:o ...
Template    metadata:Meta spec:PodSpec
JobSpec     template:Template parallelism:i completions:i activeDeadlineSeconds:i podFailurePolicy:o
            successPolicy:o backoffLimit:i backoffLimitPerIndex:i maxFailedIndexes:i selector:o
            manualSelector:b ttlSecondsAfterFinished:i completionMode:s suspend:b podReplacementPolicy:s
            managedBy:s
Replicas    replicas:i restartPolicy:s template:Template
TorchSpec   pytorchReplicaSpecs:{Replicas} runPolicy:o elasticPolicy:o nprocPerNode:s
ServiceSpec ports:[ServicePort] selector:{s} type:s clusterIP:s ...
ServicePort name:s port:i protocol:s nodePort:i targetPort:* appProtocol:s
ClaimSpec   accessModes:[s] resources:Amounts storageClassName:s volumeName:s ...
VolumeSpec  capacity:{q} accessModes:[s] claimRef:About ...
PodStatus   phase:s reason:s message:s podIP:s conditions:[Condition] containerStatuses:[RunStatus]
            initContainerStatuses:[RunStatus] startTime:s ...
RunStatus   name:s ready:b restartCount:i state:State lastState:State ...
State       running:o terminated:End waiting:Condition ...
End         exitCode:i signal:i reason:s message:s startedAt:s finishedAt:s ...
Condition   type:s status:s reason:s message:s ...
Address     type:s address:s ...
NodeStatus  capacity:{q} allocatable:{q} conditions:[Condition] addresses:[Address] nodeInfo:{s} ...
JobStatus   conditions:[Condition] active:i succeeded:i failed:i startTime:s completionTime:s ...
ClaimStatus phase:s accessModes:[s] capacity:{q} conditions:[Condition] ...
About       kind:s namespace:s name:s uid:s apiVersion:s resourceVersion:s fieldPath:s
Source      component:s host:s
Series      count:i lastObservedTime:s ...

pods                        spec:PodSpec status:PodStatus
nodes                       spec:o status:NodeStatus
jobs.batch                  spec:JobSpec status:JobStatus
pytorchjobs.kubeflow.org    spec:TorchSpec status:JobStatus
events                      involvedObject:About source:Source series:Series type:s reason:s message:s count:i
                            firstTimestamp:s lastTimestamp:s eventTime:s ...
persistentvolumes           spec:VolumeSpec status:ClaimStatus
services                    spec:ServiceSpec status:o
persistentvolumeclaims      spec:ClaimSpec status:ClaimStatus
configmaps                  data:{s} binaryData:{s} immutable:b
secrets                     data:{s} stringData:{s} immutable:b type:s
thing                       spec:o status:o ...
"""
"""Shapes by name, then kinds by key. s text, i whole number, b true or false, q quantity, o object,
* anything, [x] list, {x} object with such members; `...` where other fields are not looked at."""

Shape = dict[str, str]


def _read(text: str) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    at: Shape = {}
    for line in filter(None, text.splitlines()):
        words = line.split()
        if not line.startswith(" "):
            at = shapes[words.pop(0)] = {}
        at.update((name, kind) for name, _, kind in (word.partition(":") for word in words))
    return shapes


SHAPES = _read(SHAPES_TEXT)
"""Field to type, by shape; `...` is a field of shapes that are not wholly known."""
COMMON: Shape = {"kind": "s", "apiVersion": "s", "metadata": "Meta"}
"""What every object has."""
PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "s": str,
    "i": int,
    "b": bool,
    "q": (str, int, float),
    "o": dict,
    "*": object,
}
WORDS: Mapping[str, str] = {"s": "string", "i": "int", "b": "bool", "q": "quantity"}


@dataclass(slots=True)
class Findings:
    """What is odd about an object of a known kind."""

    misfits: list[str] = field(default_factory=list)
    """Values of the wrong type, each with its path."""
    unknown: list[tuple[dict[str, Any], str, str]] = field(default_factory=list)
    """Fields that such an object does not have: their holder, their name, their path."""


def look_over(key: str, obj: dict[str, Any]) -> Findings:
    """Compare an object with its kind's shape."""
    findings = Findings()
    _look(COMMON | SHAPES.get(key, SHAPES["thing"]), obj, "", findings)
    return findings


def _look(shape: Shape, obj: dict[str, Any], path: str, findings: Findings) -> None:
    for name, value in obj.items():
        at = f"{path}.{name}" if path else name
        if (kind := shape.get(name)) is not None:
            _look_at(kind, value, at, findings)
        elif "..." not in shape:
            findings.unknown.append((obj, name, at))


def _look_at(kind: str, value: Any, path: str, findings: Findings) -> None:
    types: Any = PLAIN.get(kind) or (list if kind[0] == "[" else dict)
    if not isinstance(value, types) or (kind in "iq" and isinstance(value, bool)):
        wanted = WORDS.get(kind, "array" if kind[0] == "[" else "object")
        findings.misfits.append(f"{path}: expected {wanted}, found {type(value).__name__}")
    elif kind[0] == "[":
        for index, element in enumerate(value):
            _look_at(kind[1:-1], element, f"{path}[{index}]", findings)
    elif kind[0] == "{":
        for name, member in value.items():
            _look_at(kind[1:-1], member, f"{path}.{name}", findings)
    elif kind in SHAPES:
        _look(SHAPES[kind], value, path, findings)
