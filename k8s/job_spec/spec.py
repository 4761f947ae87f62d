"""The spec of a training job, whatever kind it becomes, and its validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from k8s.job_spec import common_types as types
from k8s.job_spec.declaration import JobField, declare, fields_of
from k8s.job_spec.field_types import Argv, Duration, Number, OptionalNumber, Parts, Quantity, Switch, Text
from k8s.job_spec.parts import ConfigFile, EnvSource, HostMount, Mount, NewClaim, PodToleration
from k8s.job_spec.roles import ROLE_KEYS, Role
from k8s.job_spec.rules import problems_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as the user specifies it. Not validated when made: see `problems`.

    The order is that of the form and of the reference. What a field becomes, or that a kind has no such
    thing, is the kind's to say.
    """

    name: str = declare(
        "",
        "Name of the job: lowercase letters, digits and '-'",
        Text("NAME"),
        placeholder="e.g. bert-base-1",
        is_basic=True,
    )
    namespace: str = declare("default", "Namespace to create the job in", types.OBJECT_NAME, is_basic=True)
    image: str = declare("", "Container image", types.IMAGE, is_basic=True)
    worker_image: str = declare(
        "",
        "Image of the workers, where it is not that of the launcher or master",
        types.IMAGE,
        placeholder="the same image",
    )
    pull_policy: str = declare(
        "", "When nodes pull the image", types.PULL_POLICIES, flags="--image-pull-policy"
    )
    pull_secrets: tuple[str, ...] = declare(
        (),
        "Secrets with the credentials of the image registry, one per line",
        types.SECRETS,
        flags="--image-pull-secret",
        placeholder="none",
    )

    sync_mode: str = declare(
        "",
        "Where your code comes from; it is in code/ of the working directory before the command runs",
        types.SYNC_MODES,
        title="Code",
        is_basic=True,
    )
    sync_source: str = declare(
        "",
        "URL of the repository, source of rsync, or the local folder",
        Text("SOURCE"),
        title="Source",
        placeholder="https://… or ./folder",
        is_basic=True,
    )
    sync_branch: str = declare(
        "",
        "Branch or tag of the repository; git-sync takes master, a code folder the repository's default",
        Text("BRANCH"),
        title="Branch",
        placeholder="master",
    )
    sync_revision: str = declare(
        "",
        "Commit of the repository, so that every pod and every retry has the same code",
        Text("COMMIT"),
        title="Commit",
        placeholder="the newest",
    )
    sync_path: str = declare(
        "",
        "Folder within a mounted volume to clone into, once; later jobs update it, and keep local changes",
        types.FOLDER,
        title="Code folder",
        placeholder="code/ of the working directory",
    )
    git_secret: str = declare(
        "",
        "Secret with username and password, or with ssh-privatekey, for the repository",
        types.OBJECT_NAME,
        placeholder="none",
    )
    sync_image: str = declare(
        "", "Image of the container that fetches the code", types.IMAGE, placeholder="the default"
    )

    workers: int = declare(
        1,
        "Number of pods, including the master; an MPI launcher comes on top",
        Number(1, 4096),
        unit="pods",
        is_basic=True,
    )
    gpus: int = declare(
        0, "GPUs per pod; 0 trains on the CPU", Number(0, 1024), title="GPUs", unit="per pod", is_basic=True
    )
    gpu_resource: str = declare(
        "nvidia.com/gpu", "Resource name of the GPUs", types.RESOURCE, title="GPU resource"
    )
    devices: Mapping[str, str] = declare(
        {},
        "Other devices per pod, one resource=amount per line",
        types.DEVICES,
        flags="--device",
        placeholder="rdma/hca=1",
    )
    device_claim: str = declare(
        "",
        "ResourceClaimTemplate by which each pod gets its devices (dynamic resource allocation)",
        types.OBJECT_NAME,
        placeholder="none",
    )
    cpu: str = declare("", "CPUs per pod, e.g. 4 or 500m", Quantity(), title="CPU", placeholder="no request")
    memory: str = declare("", "Memory per pod, e.g. 32Gi", Quantity(), placeholder="no request")
    cpu_request: str = declare(
        "",
        "CPUs that each pod reserves, where that is less than its limit",
        Quantity(),
        title="CPU request",
        placeholder="as CPU",
    )
    memory_request: str = declare(
        "",
        "Memory that each pod reserves, where that is less than its limit",
        Quantity(),
        placeholder="as Memory",
    )
    shared_memory: str = declare(
        "2Gi",
        "Size of /dev/shm; data loader workers need it",
        Quantity(),
        flags="--share-memory",
        placeholder="64 MiB",
    )
    rdma: bool = declare(
        False, "Request one rdma/hca device per pod and the right to lock memory", Switch(), title="RDMA"
    )
    gpu_topology: bool = declare(
        False,
        "Place the pods by the links between GPUs, with the scheduler of Alibaba Cloud",
        Switch(),
        title="GPU topology",
        flags="--gputopology",
    )

    roles: tuple[Role, ...] = declare(
        (),
        "Pods that differ, one ROLE key=value … per line; keys: " + ", ".join(ROLE_KEYS),
        Parts("ROLE key=value …", Role.from_text, Role.problem),
        flags="--role",
        placeholder="worker image=train:2 gpus=8",
    )

    command: tuple[str, ...] = declare((), "Command to run; argv, not a shell line", Argv(), is_basic=True)
    trainer: str = declare("", "Packaged trainer that the command runs", Text("NAME"))
    working_dir: str = declare(
        "",
        "Working directory in the pods",
        types.FOLDER,
        flags="--working-dir --workingDir",
        placeholder="the mount path",
    )
    processes: int = declare(
        1,
        "Training processes per pod (torchrun --nproc-per-node); empty: one per GPU",
        Number(1, 1024),
        flags="--nproc-per-node",
        unit="per pod",
        placeholder="1 per GPU",
        is_basic=True,
    )
    torchrun: bool = declare(
        False,
        "Start the command's script by torchrun, with as many processes per pod as above",
        Switch(),
        title="torchrun",
    )
    max_restarts: int = declare(
        0, "How often torchrun starts failed processes again before the pod fails", Number(0, 1000)
    )
    rdzv_backend: str = declare(
        "", "How torchrun's nodes find each other", types.RDZV_BACKENDS, title="Rendezvous"
    )
    torchrun_options: tuple[str, ...] = declare(
        (),
        "More options of torchrun, as on its command line",
        Argv("OPTIONS"),
        title="torchrun options",
        placeholder="none",
    )
    slots: int | None = declare(
        None,
        "Ranks that MPI starts in each worker; empty: one per GPU",
        OptionalNumber(Number(1, 1024)),
        flags="--slots-per-worker",
        unit="per worker",
        placeholder="1 per GPU",
    )
    launcher_policy: str = declare(
        "", "When the MPI launcher is created", types.LAUNCHER_POLICIES, title="Launcher starts"
    )
    mounts_on_launcher: bool = declare(
        False, "Mount the volume claims in the MPI launcher too", Switch(), title="Launcher mounts"
    )
    elastic_min: int | None = declare(
        None,
        "Workers with which an elastic job goes on",
        OptionalNumber(Number(1, 4096)),
        title="Fewest workers",
        placeholder="not elastic",
    )
    elastic_max: int | None = declare(
        None,
        "Workers to which an elastic job grows",
        OptionalNumber(Number(1, 4096)),
        title="Most workers",
        placeholder="not elastic",
    )
    runtime: str = declare(
        "",
        "Training runtime of a TrainJob; trainingruntime/NAME for one of the namespace",
        types.RUNTIME,
        placeholder="torch-distributed, or deepspeed-distributed with slots",
    )
    debug: bool = declare(
        False,
        "Let the pods sleep in place of training, to look around in a shell",
        Switch(),
        title="Debug mode",
    )

    mounts: tuple[Mount, ...] = declare(
        (),
        "One claim:/path per line; claim/folder:/path mounts a folder, claim:/path:ro forbids writing",
        Parts("CLAIM:/PATH", Mount.from_text),
        title="Volumes",
        flags="--data -d",
        placeholder="claim:/path",
    )
    new_claims: tuple[NewClaim, ...] = declare(
        (),
        "Volume claims to create before the job, which outlive it, one NAME SIZE [CLASS] [MODE] per line",
        Parts("NAME SIZE [CLASS] [MODE]", NewClaim.from_text, NewClaim.problem),
        flags="--create-claim",
        placeholder="data 100Gi RWX",
    )
    host_mounts: tuple[HostMount, ...] = declare(
        (),
        "Folders of the node, one /host/folder:/path per line",
        Parts("FOLDER[:/PATH]", HostMount.from_text),
        title="Host folders",
        flags="--data-dir",
        placeholder="/host/folder:/path",
    )
    config_files: tuple[ConfigFile, ...] = declare(
        (),
        "Local files that come with the job in a ConfigMap, one file:/path per line",
        Parts("FILE:/PATH", ConfigFile.from_text),
        flags="--config-file",
        placeholder="file:/path",
    )
    log_dir: str = declare(
        "",
        "Directory in the pods where it writes TensorBoard event files, for the curves",
        types.FOLDER,
        title="Event files",
        flags="--logdir",
        placeholder="none, or e.g. /workspace/logs",
    )
    tensorboard: bool = declare(
        False, "Run a TensorBoard on the event files as long as the job exists", Switch(), title="TensorBoard"
    )
    tensorboard_image: str = declare(
        "", "Image of the TensorBoard", types.IMAGE, title="TensorBoard image", placeholder="the default"
    )

    env: Mapping[str, str] = declare(
        {},
        "One NAME=value per line",
        types.VARIABLES,
        title="Environment",
        flags="--env -e",
        placeholder="NAME=value",
        is_basic=True,
    )
    env_from: tuple[EnvSource, ...] = declare(
        (),
        "Variables from secret/NAME or configmap/NAME, or one as VARIABLE=secret/NAME/KEY; one per line",
        Parts("SOURCE", EnvSource.from_text),
        placeholder="WANDB_API_KEY=secret/wandb/key",
    )

    priority_class: str = declare(
        "", "PriorityClass of the pods", types.OBJECT_NAME, flags="--priority -p", placeholder="none"
    )
    queue: str = declare(
        "",
        "Kueue's LocalQueue that admits the job",
        types.OBJECT_NAME,
        flags="--kueue-queue",
        placeholder="none",
    )
    kube_queue: bool = declare(
        False, "Hold the job until kube-queue releases it", Switch(), title="kube-queue", flags="--queue"
    )
    gang: bool = declare(
        False, "Start all pods of the job or none, with a scheduler that knows pod groups", Switch()
    )
    scheduler: str = declare(
        "", "Scheduler that places the pods", types.OBJECT_NAME, placeholder="the default"
    )
    node_selector: Mapping[str, str] = declare(
        {},
        "Labels of the nodes to run on, one name=value per line",
        types.NAMED_VALUES,
        flags="--selector",
        placeholder="gpu=a100",
    )
    excluded_nodes: tuple[str, ...] = declare(
        (),
        "Nodes to keep off, one per line",
        types.NODES,
        title="Not on nodes",
        flags="--exclude-node",
        placeholder="none",
    )
    tolerations: tuple[PodToleration, ...] = declare(
        (),
        "Taints that do not matter, one key=value:effect per line; all for any",
        Parts("TAINT", PodToleration.from_text),
        flags="--toleration",
        placeholder="key=value:NoSchedule",
    )
    host_network: bool = declare(False, "Use the node's network", Switch(), flags="--hostNetwork")
    host_ipc: bool = declare(
        False, "Use the node's inter-process communication", Switch(), title="Host IPC", flags="--hostIPC"
    )
    host_pid: bool = declare(False, "See the node's processes", Switch(), title="Host PID", flags="--hostPID")
    run_as_user: int | None = declare(
        None,
        "Number of the user that the processes run as",
        OptionalNumber(Number(0, 2**31 - 1)),
        title="User id",
        placeholder="the image's",
    )

    retries: int = declare(0, "Retries before the job fails (backoffLimit)", Number(0, 1000), flags="--retry")
    restart_policy: str = declare("", "When a pod that ended is started again", types.RESTART_POLICIES)
    running_timeout_s: int = declare(
        0,
        "How long the job may run before it fails, e.g. 90m or 2d",
        Duration(),
        title="Time limit",
        flags="--running-timeout",
        placeholder="none",
    )
    ttl_s: int = declare(
        0,
        "How long the job is kept after it ended, e.g. 7d",
        Duration(),
        title="Keep for",
        flags="--ttl-after-finished",
        placeholder="for ever",
    )
    clean_pods: str = declare(
        "None",
        "Pods to delete when the job ends (cleanPodPolicy); their logs go with them",
        types.CLEAN_PODS,
        flags="--clean-task-policy",
    )
    suspend: bool = declare(False, "Create the job suspended; resume starts it", Switch(), title="Suspended")
    labels: Mapping[str, str] = declare(
        {}, "One name=value per line", types.NAMED_VALUES, flags="--label -l", placeholder="team=vision"
    )
    annotations: Mapping[str, str] = declare(
        {}, "One name=value per line", types.NAMED_VALUES, flags="--annotation -a", placeholder="name=value"
    )
    user: str = declare("", "Who submits", Text("NAME"))

    def problems(self) -> dict[str, str]:
        """Return what is wrong, by field, in a sentence that says what would be right.

        Local only: the server has the last word.
        """
        return problems_of(self, JOB_FIELDS)


JOB_FIELDS: Mapping[str, JobField] = fields_of(JobSpec)
"""The declaration of every field, by name, in the order of form and reference."""
