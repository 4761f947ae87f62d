"""An example value of every field of a job, with what else must be chosen for it to mean anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from k8s.kinds.job_spec import EnvSource, HostMount, JobSpec, Mount, PodToleration, Role

BASE = JobSpec(
    name="bert",
    namespace="vision",
    image="pytorch/pytorch:2.6.0",
    command=("python", "train.py"),
    workers=2,
    gpus=2,
)
IN_CODE = {
    *("sync_mode", "sync_source", "sync_branch", "sync_revision", "sync_path", "git_secret", "sync_image"),
    *("config_files", "new_claims"),
}
"""Fields of what comes along with a job: see `test_pod_code` and `test_companions`."""
_ON_CLAIM: dict[str, Any] = {"mounts": (Mount("workspace", "/workspace"),), "log_dir": "/workspace/logs"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "name": {"name": "gpt"},
    "namespace": {"namespace": "speech"},
    "image": {"image": "other:1"},
    "worker_image": {"worker_image": "worker:1"},
    "pull_policy": {"pull_policy": "Never"},
    "pull_secrets": {"pull_secrets": ("registry", "mirror")},
    "workers": {"workers": 3},
    "gpus": {"gpus": 4},
    "gpu_resource": {"gpu_resource": "amd.com/gpu"},
    "devices": {"devices": {"rdma/hca": "1"}},
    "device_claim": {"device_claim": "gpus-of-one-node"},
    "cpu": {"cpu": "4-8"},
    "memory": {"memory": "8Gi-64Gi"},
    "shared_memory": {"shared_memory": "8Gi"},
    "gpu_topology": {"gpu_topology": True},
    "command": {"command": ("python", "-m", "other")},
    "roles": {
        "roles": (
            Role(
                "worker",
                image="worker:1",
                gpus=4,
                cpu="4-8",
                memory="16Gi-32Gi",
                restart_policy="OnFailure",
                working_dir="/w",
                command=("python", "a b.py"),
            ),
        )
    },
    "trainer": {"trainer": "ddp"},
    "working_dir": {"working_dir": "/root"},
    "processes": {"processes": 2},
    "torchrun": {"torchrun": True},
    "max_restarts": {"max_restarts": 3, "torchrun": True},
    "rdzv_backend": {"rdzv_backend": "c10d", "torchrun": True},
    "torchrun_options": {"torchrun_options": ("--log-dir=/tmp/x",), "torchrun": True},
    "slots": {"slots": 8},
    "launcher_policy": {"launcher_policy": "WaitForWorkersReady"},
    "mounts_on_launcher": {"mounts_on_launcher": True, "mounts": (Mount("workspace", "/workspace"),)},
    "elastic": {"elastic": (1, 4)},
    "runtime": {"runtime": "trainingruntime/mine"},
    "debuggable": {"debuggable": True},
    "debug": {"debug": True},
    "mounts": {"mounts": (Mount("data", "/data", "imagenet", True), Mount("out", "/out"))},
    "host_mounts": {"host_mounts": (HostMount("/mnt/nvme", "/cache"),)},
    "log_dir": {"log_dir": "/workspace/logs"},
    "tensorboard": {"tensorboard": True, **_ON_CLAIM},
    "tensorboard_image": {"tensorboard": True, "tensorboard_image": "tb:2", **_ON_CLAIM},
    "env": {"env": {"LR": "1e-4"}},
    "env_from": {"env_from": (EnvSource(True, "wandb", "key", "WANDB_API_KEY"),)},
    "priority_class": {"priority_class": "high"},
    "queue": {"queue": "team-a"},
    "kube_queue": {"kube_queue": True},
    "gang": {"gang": True},
    "scheduler": {"scheduler": "volcano"},
    "node_selector": {"node_selector": {"gpu": "a100"}},
    "excluded_nodes": {"excluded_nodes": ("node-3", "node-7")},
    "tolerations": {"tolerations": (PodToleration("gpu", "yes", "NoSchedule", "Equal"), PodToleration())},
    "host_namespaces": {"host_namespaces": ("network", "ipc", "pid")},
    "run_as_user": {"run_as_user": 1000},
    "retries": {"retries": 3},
    "restart_policy": {"restart_policy": "OnFailure"},
    "running_timeout_s": {"running_timeout_s": 3600},
    "ttl_s": {"ttl_s": 600},
    "clean_pods": {"clean_pods": "All"},
    "suspend": {"suspend": True},
    "labels": {"labels": {"team": "vision"}},
    "annotations": {"annotations": {"note": "first try"}},
    "user": {"user": "li"},
}
"""By field."""
OF_KIND: dict[str, dict[str, dict[str, Any]]] = {
    "mpi": {
        "roles": {
            "roles": (
                Role("launcher", gpus=1, cpu="1-2", memory="1Gi-4Gi"),
                Role(
                    "worker",
                    image="worker:1",
                    restart_policy="OnFailure",
                    working_dir="/w",
                    command=("sshd", "-De"),
                ),
            )
        }
    },
    "t9k": {"roles": {"roles": (Role("master", 1), replace(EXAMPLES["roles"]["roles"][0], replicas=1))}},
}
"""By the word for a kind: fields of which it has another example."""
