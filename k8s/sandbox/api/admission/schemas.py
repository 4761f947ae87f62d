"""Schemas of the objects: names, types, required fields and defaults.

A field that is not in a kind's shape is dropped, as on a real server, or refused.
Rules between fields are in `validation` and `defaults`.
Source: k8s.io/api core/v1 and batch/v1 `types.go` (1.31), kubeflow.org/v1 `types.go`; T9k's
user manuals, as its CRDs are not public.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from k8s.models import quantity
from k8s.sandbox.api.api_errors import StatusCause

# Shapes by name, then kinds by key. A field is `name:type`, followed by `!` if it is required, or by `=` and
# its default as JSON. A type is a key of `SORTS`, a choice of words, a shape, [x] for a list of x, {x} for a
# mapping to x. `...` allows fields that are not listed.
SHAPES_TEXT = """
Meta        name:s generateName:s namespace:s uid:s resourceVersion:s selfLink:s generation:i
            creationTimestamp:s deletionTimestamp:s deletionGracePeriodSeconds:i labels:{s} annotations:{s}
            finalizers:[s] ownerReferences:[Owner] managedFields:[o]
Owner       apiVersion:s kind:s name:s uid:s controller:b blockOwnerDeletion:b
Amounts     limits:{q} requests:{q} claims:[o]
Env         name:s! value:s valueFrom:EnvSource
EnvSource   fieldRef:FieldRef configMapKeyRef:o secretKeyRef:o resourceFieldRef:o ...
FieldRef    apiVersion:s="v1" fieldPath:s
Port        containerPort:port! name:s protocol:s="TCP" hostPort:i hostIP:s
Mount       name:s! mountPath:s! subPath:s subPathExpr:s readOnly:b recursiveReadOnly:s mountPropagation:s
Container   name:label! image:s! command:[s] args:[s] workingDir:s ports:[Port] envFrom:[o] env:[Env]
            resources:Amounts={} resizePolicy:[o] restartPolicy:s volumeMounts:[Mount] volumeDevices:[o]
            livenessProbe:Probe readinessProbe:Probe startupProbe:Probe lifecycle:Lifecycle
            imagePullPolicy:s securityContext:o
            terminationMessagePath:s="/dev/termination-log" terminationMessagePolicy:s="File"
            stdin:b stdinOnce:b tty:b
Probe       exec:Exec httpGet:HttpGet tcpSocket:TcpSocket grpc:o initialDelaySeconds:count
            timeoutSeconds:count=1 periodSeconds:count=10 successThreshold:count=1 failureThreshold:count=3
            terminationGracePeriodSeconds:count
Exec        command:[s]
HttpGet     path:s="/" port:*! host:s scheme:HTTP|HTTPS="HTTP" httpHeaders:[HttpHeader]
HttpHeader  name:s! value:s
TcpSocket   port:*! host:s
Lifecycle   postStart:Handler preStop:Handler stopSignal:s
Handler     exec:Exec httpGet:HttpGet tcpSocket:TcpSocket sleep:Sleep
Sleep       seconds:count
PodSpec     containers:[Container]! initContainers:[Container] ephemeralContainers:[o] volumes:[Volume]
            restartPolicy:Always|OnFailure|Never terminationGracePeriodSeconds:count=30
            activeDeadlineSeconds:positive dnsPolicy:s="ClusterFirst" securityContext:o={}
            nodeSelector:{s} serviceAccountName:s serviceAccount:s automountServiceAccountToken:b nodeName:s
            hostNetwork:b hostPID:b hostIPC:b shareProcessNamespace:b imagePullSecrets:[o]
            hostname:s subdomain:s affinity:o schedulerName:s="default-scheduler" tolerations:[o]
            hostAliases:[o] priorityClassName:s priority:i dnsConfig:o readinessGates:[o] runtimeClassName:s
            enableServiceLinks:b preemptionPolicy:s overhead:{q} topologySpreadConstraints:[o]
            setHostnameAsFQDN:b os:o hostUsers:b schedulingGates:[o] resourceClaims:[o] resources:Amounts
Volume      name:label! emptyDir:o configMap:Files secret:Files persistentVolumeClaim:ClaimName hostPath:o ...
Files       defaultMode:i=420 ...
ClaimName   claimName:s! readOnly:b
Template    metadata:Meta spec:PodSpec={}
JobSpec     template:Template={} parallelism:count completions:count activeDeadlineSeconds:count
            backoffLimit:count=6 backoffLimitPerIndex:i maxFailedIndexes:i selector:o manualSelector:b
            ttlSecondsAfterFinished:count completionMode:Indexed|NonIndexed="NonIndexed" suspend:b=false
            podFailurePolicy:o successPolicy:o podReplacementPolicy:s managedBy:s
DeploySpec  replicas:count=1 selector:o! template:Template={} strategy:Strategy={} paused:b
            minReadySeconds:count revisionHistoryLimit:count=10 progressDeadlineSeconds:count=600
Strategy    type:Recreate|RollingUpdate="RollingUpdate" rollingUpdate:o
Replicas    replicas:i restartPolicy:s template:ReplicaPod
ReplicaPod  metadata:Meta spec:PodSpec
TorchSpec   pytorchReplicaSpecs:{Replicas}! runPolicy:o elasticPolicy:o nprocPerNode:s
T9kSpec     replicaSpecs:[T9kReplicas]! torchrunConfig:Torchrun elastic:T9kElastic runMode:o
            runPolicy:T9kPolicy tensorboardSpec:o scheduler:o ...
T9kMpiSpec  replicaSpecs:[T9kReplicas] worker:T9kWorker mpiConfig:T9kMpi mca:{s} mpiHome:s ssh:o runMode:o
            runPolicy:T9kPolicy scheduler:o ...
T9kWorker   replicas:count extraMPIArgs:[s] cmd:[s] template:ReplicaPod! ...
T9kMpi      mca:{s} home:s extraArgs:[s] script:[s] ...
T9kReplicas type:label! replicas:count scalingWeight:i restartPolicy:Always|OnFailure|Never|ExitCode
            template:ReplicaPod! ...
Torchrun    enabled:b maxRestarts:count procPerNode:s rdzvBackend:s extraOptions:[s] ...
T9kElastic  enabled:b minReplicas:count maxReplicas:count expectedReplicas:count ...
T9kPolicy   activeDeadlineSeconds:count backoffLimit:count cleanUpPolicy:None|All|Unfinished ...
TrainSpec   runtimeRef:RuntimeRef! trainer:Trainer initializer:o runtimePatches:[o] suspend:b managedBy:s
            activeDeadlineSeconds:positive
RuntimeRef  name:s! apiGroup:s kind:s
Trainer     image:s command:[s] args:[s] env:[Env] numNodes:positive numProcPerNode:positive
            resourcesPerNode:Amounts
RunTimeSpec template:SetTemplate! mlPolicy:o podGroupPolicy:o
SetTemplate metadata:Meta spec:SetSpec!
SetSpec     replicatedJobs:[SetJob]! suspend:b network:o successPolicy:o failurePolicy:o startupPolicy:o
            managedBy:s ttlSecondsAfterFinished:count coordinator:o volumeClaimPolicies:[o]
SetJob      name:label! replicas:count groupName:s dependsOn:[o] template:SetJobPods!
SetJobPods  metadata:Meta spec:SetPods!
SetPods     template:ReplicaPod! ...
MpiSpec     mpiReplicaSpecs:{Replicas}! runPolicy:MpiPolicy slotsPerWorker:i sshAuthMountPath:s
            mpiImplementation:OpenMPI|Intel|MPICH launcherCreationPolicy:s runLauncherAsWorker:b
MpiPolicy   cleanPodPolicy:s backoffLimit:i activeDeadlineSeconds:i ttlSecondsAfterFinished:i suspend:b
            schedulingPolicy:o managedBy:s
MpiPodSpec  mpiReplicaSpecs:{Replicas}! runPolicy:o slotsPerWorker:i cleanPodPolicy:s mainContainer:s
MpiSpec1    template:ReplicaPod replicas:i gpus:i slotsPerWorker:i backoffLimit:i cleanPodPolicy:s
            launcherResources:o launcherOnMaster:b mountsOnLauncher:b ...
ServiceSpec ports:[ServicePort] selector:{s} type:s="ClusterIP" clusterIP:s sessionAffinity:s="None" ...
ServicePort name:s port:port! protocol:s="TCP" nodePort:i targetPort:* appProtocol:s
ClaimSpec   accessModes:[ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod] resources:Amounts={}
            storageClassName:s volumeName:s volumeMode:s="Filesystem" ...
NameSpec    finalizers:[s]=["kubernetes"] ...
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

pods                        spec:PodSpec={} status:PodStatus
nodes                       spec:o={} status:NodeStatus
jobs.batch                  spec:JobSpec={} status:JobStatus
deployments.apps            spec:DeploySpec={} status:o
pytorchjobs.kubeflow.org    spec:TorchSpec status:JobStatus
trainjobs.trainer.kubeflow.org  spec:TrainSpec! status:JobStatus
clustertrainingruntimes.trainer.kubeflow.org  spec:RunTimeSpec!
trainingruntimes.trainer.kubeflow.org  spec:RunTimeSpec!
mpijobs.batch.tensorstack.dev  spec:T9kMpiSpec! status:o
pytorchtrainingjobs.batch.tensorstack.dev  spec:T9kSpec! status:o
mpijobs.kubeflow.org        spec:MpiSpec! status:JobStatus
mpijobs.v1.kubeflow.org     spec:MpiPodSpec status:JobStatus
mpijobs.v1alpha1.kubeflow.org  spec:MpiSpec1 status:o
namespaces                  spec:NameSpec={} status:o
events                      involvedObject:About source:Source={} series:Series type:s reason:s message:s
                            count:i firstTimestamp:s lastTimestamp:s eventTime:s ...
services                    spec:ServiceSpec={} status:o
persistentvolumeclaims      spec:ClaimSpec={} status:ClaimStatus
configmaps                  data:{s} binaryData:{s} immutable:b
secrets                     data:{s} stringData:{s} immutable:b type:s="Opaque"
thing                       spec:o status:o ...
"""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

NOT_NEGATIVE = "must be greater than or equal to 0"


def is_label(text: str) -> bool:
    """Return True if a text is a DNS label."""
    return bool(_LABEL.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Sort:
    """One sort of value."""

    types: type | tuple[type, ...]
    title: str
    is_valid: Callable[[Any], bool] = lambda value: True
    why: str = ""


TEXT, LIST, OBJECT = Sort(str, "string"), Sort(list, "array"), Sort(dict, "object")
QUANTITY = Sort((str, int, float), "quantity")
SORTS: Mapping[str, Sort] = {
    "s": TEXT,
    "i": Sort(int, "int"),
    "b": Sort(bool, "bool"),
    "q": QUANTITY,
    "o": OBJECT,
    "*": Sort(object, "anything"),
    "label": Sort(str, "string", is_label, LABEL_RULE),
    "port": Sort(int, "int", range(1, 65536).__contains__, "must be between 1 and 65535, inclusive"),
    "count": Sort(int, "int", (0).__le__, NOT_NEGATIVE),
    "positive": Sort(int, "int", range(1, 2**31).__contains__, "must be between 1 and 2147483647, inclusive"),
}
JSON_TYPES = {str: "string", int: "number", float: "number", bool: "boolean", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field of a shape; `default` is JSON, empty if there is none."""

    kind: str
    is_required: bool = False
    default: str = ""


Shape = dict[str, SchemaField]
OPEN = "..."


def arguments_by_row(text: str) -> dict[str, list[str]]:
    """Parse a table in text: each row is a key and words; an indented line continues the row above."""
    rows: dict[str, list[str]] = {}
    for line in filter(None, text.splitlines()):
        words = line.split()
        key = next(reversed(rows)) if line.startswith(" ") else words.pop(0)
        rows.setdefault(key, []).extend(words)
    return rows


def _field(text: str) -> SchemaField:
    kind, _, default = text.partition("=")
    return SchemaField(kind.removesuffix("!"), kind.endswith("!"), default)


SHAPES: Mapping[str, Shape] = {
    key: {name: _field(rest) for name, _, rest in (word.partition(":") for word in words)}
    for key, words in arguments_by_row(SHAPES_TEXT).items()
}
COMMON: Shape = {"kind": SchemaField("s"), "apiVersion": SchemaField("s"), "metadata": SchemaField("Meta")}


@dataclass(slots=True)
class Findings:
    """Differences between an object and its shape; an unknown field is its holder, its name and its path."""

    mismatches: list[str] = field(default_factory=list)
    unknown: list[tuple[dict[str, Any], str, str]] = field(default_factory=list)
    causes: list[StatusCause] = field(default_factory=list)


def check(key: str, obj: dict[str, Any]) -> Findings:
    """Compare an object with the shape of its kind."""
    findings = Findings()
    _check_shape(_shape_of(key), obj, "", findings)
    return findings


def fill(key: str, obj: dict[str, Any]) -> None:
    """Set the defaults of a kind, and turn quantities into text as a real server does."""
    _fill(_shape_of(key), obj)


def _shape_of(key: str) -> Shape:
    return COMMON | SHAPES.get(key, SHAPES["thing"])


def _check_shape(shape: Shape, obj: dict[str, Any], path: str, findings: Findings) -> None:
    for name, value in obj.items():
        at = f"{path}.{name}" if path else name
        if (known := shape.get(name)) is not None:
            _check_value(known.kind, value, at, findings)
        elif OPEN not in shape:
            findings.unknown.append((obj, name, at))
    missing = [name for name, known in shape.items() if known.is_required and not obj.get(name)]
    findings.causes += [StatusCause.required(f"{path}.{name}") for name in missing]


def _check_value(kind: str, value: Any, path: str, findings: Findings) -> None:
    sort = _sort_of(kind)
    if mismatch := _mismatch(sort, value):
        findings.mismatches.append(f"{path}: {mismatch}")
    elif kind[0] == "[":
        for index, element in enumerate(value):
            _check_value(kind[1:-1], element, f"{path}[{index}]", findings)
    elif kind[0] == "{":
        for name, member in value.items():
            _check_value(kind[1:-1], member, f"{path}.{name}", findings)
    elif kind in SHAPES:
        _check_shape(SHAPES[kind], value, path, findings)
    elif value != "" and "|" in kind and value not in kind.split("|"):
        findings.causes.append(StatusCause.unsupported(path, value, kind.split("|")))
    elif value != "" and not sort.is_valid(value):
        findings.causes.append(StatusCause.invalid(path, value, sort.why))


def _sort_of(kind: str) -> Sort:
    if kind[0] == "[":
        return LIST
    if kind[0] == "{" or kind in SHAPES:
        return OBJECT
    return SORTS.get(kind, TEXT)


def _mismatch(sort: Sort, value: Any) -> str:
    is_stray = isinstance(value, bool) and sort.types not in (bool, object)
    if is_stray or not isinstance(value, sort.types):
        return f"expected {sort.title}, found {JSON_TYPES.get(type(value), 'null')}"
    if sort is QUANTITY and isinstance(value, str | int | float):
        try:
            quantity.parse(str(value))  # as it will be stored
        except ValueError as error:
            return str(error)
    return ""


def _fill(shape: Shape, obj: dict[str, Any]) -> None:
    for name, known in shape.items():
        if known.default and name not in obj:
            obj[name] = msgspec.json.decode(known.default)
        if name in obj:
            obj[name] = _filled(known.kind, obj[name])


def _filled(kind: str, value: Any) -> Any:
    if kind == "q":
        return str(value)
    if kind in SHAPES:
        _fill(SHAPES[kind], value)
    elif kind[0] == "[":
        value[:] = [_filled(kind[1:-1], element) for element in value]
    elif kind[0] == "{":
        value.update({name: _filled(kind[1:-1], member) for name, member in value.items()})
    return value
