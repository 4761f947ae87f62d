"""The field types that fields share, and the words of those that are a choice."""

from __future__ import annotations

import re

from k8s.job_spec.field_types import (
    DNS_NAME,
    DNS_SENTENCE,
    Choice,
    Pairs,
    Parts,
    Text,
    dns_problem,
    name_from_text,
)

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9._]{0,62}")

OBJECT_NAME = Text("NAME", DNS_NAME, DNS_SENTENCE)
RUNTIME = Text("RUNTIME", re.compile(f"(trainingruntime/)?(?:{DNS_NAME.pattern})"), DNS_SENTENCE)
IMAGE = Text("IMAGE", re.compile(r"\S*"), "Must not contain spaces.")
FOLDER = Text("FOLDER")
RESOURCE = Text("RESOURCE", _RESOURCE_NAME, "Must be a resource name, e.g. nvidia.com/gpu.")
DEVICES = Pairs("RESOURCE=N", _RESOURCE_NAME, "resource name")
NAMED_VALUES = Pairs("NAME=VALUE")
VARIABLES = Pairs("NAME=VALUE", _ENV_NAME, "variable name: use letters, digits and '_'")
SECRETS = Parts("SECRET", name_from_text, dns_problem)
NODES = Parts("NODE", name_from_text, dns_problem)

PULL_POLICIES = Choice(
    (
        ("", "the cluster's default"),
        ("Always", "Always"),
        ("IfNotPresent", "IfNotPresent"),
        ("Never", "Never"),
    )
)
SYNC_MODES = Choice((("", "the image"), ("git", "git"), ("rsync", "rsync"), ("folder", "a local folder")))
RDZV_BACKENDS = Choice((("", "the default"), ("c10d", "c10d"), ("etcd", "etcd"), ("etcd-v2", "etcd-v2")))
LAUNCHER_POLICIES = Choice(
    (("", "the default"), ("AtStartup", "with the workers"), ("WaitForWorkersReady", "when they are ready"))
)
RESTART_POLICIES = Choice(
    (
        ("", "OnFailure with retries, else Never"),
        ("Always", "Always"),
        ("OnFailure", "OnFailure"),
        ("Never", "Never"),
        ("ExitCode", "ExitCode: from 128 on"),
    )
)
CLEAN_PODS = Choice((("None", "None: keep all pods"), ("Running", "Running pods"), ("All", "All pods")))
