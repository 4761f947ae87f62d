"""Specification of a training job, independent of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from k8s.kinds.job_spec import field_types as types
from k8s.kinds.job_spec.field_types import (
    BYTES,
    Argv,
    Duration,
    JobField,
    Number,
    NumberRange,
    OptionalNumber,
    Parts,
    Switch,
    Text,
    declare,
    fields_of,
)
from k8s.kinds.job_spec.parts import (
    ROLE_KEYS,
    ConfigFile,
    EnvSource,
    HostMount,
    Mount,
    NewClaim,
    PodToleration,
    Role,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Training job as the user specifies it. Not validated on creation: see `problems_of`.

    The order is that of the form and the reference. Kinds decide what a field becomes, and which
    fields they do not support.
    """

    name: str = declare(
        "",
        "Job name: lowercase letters, digits and '-'",
        Text("NAME"),
        placeholder="e.g. bert-base-1",
        is_basic=True,
    )
    namespace: str = declare("default", "Namespace to create the job in", types.OBJECT_NAME, is_basic=True)
    image: str = declare("", "Container image", types.IMAGE, is_basic=True)
    worker_image: str = declare(
        "",
        "Image of the workers, if it differs from that of the launcher or master",
        types.IMAGE,
        placeholder="same image",
    )
    pull_policy: str = declare(
        "", "When nodes pull the image", types.PULL_POLICIES, flags="--image-pull-policy"
    )
    pull_secrets: tuple[str, ...] = declare(
        (),
        "Secrets with credentials for the image registry, one per line",
        types.SECRETS,
        flags="--image-pull-secret",
        placeholder="none",
    )

    sync_mode: str = declare(
        "",
        "Source of your code, which is put into code/ of the working directory before the command runs",
        types.SYNC_MODES,
        title="Code",
        is_basic=True,
    )
    sync_source: str = declare(
        "",
        "Repository URL, rsync source, or local folder",
        Text("SOURCE"),
        title="Source",
        placeholder="https://… or ./folder",
        is_basic=True,
    )
    sync_branch: str = declare(
        "",
        "Branch or tag; by default master with git-sync, the repository's default branch with a code folder",
        Text("BRANCH"),
        title="Branch",
        placeholder="master",
    )
    sync_revision: str = declare(
        "",
        "Commit to check out, so that all pods and retries run the same code",
        Text("COMMIT"),
        title="Commit",
        placeholder="latest",
    )
    sync_path: str = declare(
        "",
        "Folder on a mounted volume to clone into; later jobs update it but keep local changes",
        types.FOLDER,
        title="Code folder",
        placeholder="code/ of the working directory",
    )
    git_secret: str = declare(
        "",
        "Secret for the repository, with username and password or with ssh-privatekey",
        types.OBJECT_NAME,
        placeholder="none",
    )
    sync_image: str = declare(
        "", "Image of the container that fetches the code", types.IMAGE, placeholder="the default"
    )

    workers: int = declare(
        1,
        "Number of pods, including the master but not an MPI launcher",
        Number(1, 4096),
        unit="pods",
        is_basic=True,
    )
    gpus: int = declare(
        0, "GPUs per pod; 0 to train on the CPU", Number(0, 1024), title="GPUs", unit="per pod", is_basic=True
    )
    gpu_resource: str = declare(
        "nvidia.com/gpu", "Resource name of the GPUs", types.RESOURCE, title="GPU resource"
    )
    devices: Mapping[str, str] = declare(
        {},
        "Other devices per pod, one resource=amount per line; with rdma/… pods may lock memory",
        types.DEVICES,
        flags="--device",
        placeholder="rdma/hca=1",
    )
    device_claim: str = declare(
        "",
        "ResourceClaimTemplate for the devices of each pod (dynamic resource allocation)",
        types.OBJECT_NAME,
        placeholder="none",
    )
    cpu: str = declare(
        "",
        "CPUs per pod, e.g. 4 or 500m; REQUEST-LIMIT, as in 2-4, to reserve less than the limit",
        types.POD_CORES,
        title="CPU",
        placeholder="no request",
    )
    memory: str = declare(
        "",
        "Memory per pod, e.g. 32Gi; REQUEST-LIMIT, as in 16Gi-32Gi, to reserve less than the limit",
        types.POD_BYTES,
        placeholder="no request",
    )
    shared_memory: str = declare(
        "2Gi",
        "Size of /dev/shm, which data loader workers use",
        BYTES,
        flags="--share-memory",
        placeholder="64 MiB",
    )
    gpu_topology: bool = declare(
        False,
        "Place pods by the links between GPUs (Alibaba Cloud's scheduler)",
        Switch(),
        title="GPU topology",
        flags="--gputopology",
    )

    roles: tuple[Role, ...] = declare(
        (),
        "Settings per role, one ROLE key=value … per line; keys: " + ", ".join(ROLE_KEYS),
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
        placeholder="mount path",
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
    torchrun: bool = declare(False, "Start the command's script with torchrun", Switch(), title="torchrun")
    max_restarts: int = declare(
        0, "How often torchrun restarts failed processes before the pod fails", Number(0, 1000)
    )
    rdzv_backend: str = declare("", "Rendezvous backend of torchrun", types.RDZV_BACKENDS, title="Rendezvous")
    torchrun_options: tuple[str, ...] = declare(
        (), "Additional torchrun options", Argv("OPTIONS"), title="torchrun options", placeholder="none"
    )
    slots: int | None = declare(
        None,
        "MPI ranks per worker; empty: one per GPU",
        OptionalNumber(Number(1, 1024)),
        flags="--slots-per-worker",
        unit="per worker",
        placeholder="1 per GPU",
    )
    launcher_policy: str = declare(
        "", "When the MPI launcher is created", types.LAUNCHER_POLICIES, title="Launcher creation"
    )
    mounts_on_launcher: bool = declare(
        False, "Also mount the volume claims in the MPI launcher", Switch(), title="Launcher mounts"
    )
    elastic: tuple[int, int] | None = declare(
        None,
        "Minimum and maximum number of workers of an elastic job",
        NumberRange(Number(1, 4096)),
        placeholder="not elastic, or e.g. 2-8",
    )
    runtime: str = declare(
        "",
        "Training runtime of a TrainJob; trainingruntime/NAME for one in the namespace",
        types.RUNTIME,
        placeholder="torch-distributed, or deepspeed-distributed with slots",
    )
    debug: bool = declare(
        False, "Let the pods sleep instead of training, to debug in a shell", Switch(), title="Debug mode"
    )

    debuggable: bool = declare(
        False,
        "Let diagnose see the stacks of your Python ranks; sets PYTHONPATH; packaged trainers always do",
        Switch(),
    )

    mounts: tuple[Mount, ...] = declare(
        (),
        "One claim:/path per line; claim/folder:/path for a folder of it, claim:/path:ro for read-only",
        Parts("CLAIM:/PATH", Mount.from_text),
        title="Volumes",
        flags="--data -d",
        placeholder="claim:/path",
    )
    new_claims: tuple[NewClaim, ...] = declare(
        (),
        "Volume claims to create and keep after the job, one NAME:SIZE[:CLASS][:MODE] per line",
        Parts("NAME:SIZE[:CLASS][:MODE]", NewClaim.from_text, NewClaim.problem),
        flags="--create-claim",
        placeholder="data:100Gi:RWX",
    )
    host_mounts: tuple[HostMount, ...] = declare(
        (),
        "Folders of the node to mount, one /host/folder:/path per line",
        Parts("FOLDER[:/PATH]", HostMount.from_text),
        title="Host folders",
        flags="--data-dir",
        placeholder="/host/folder:/path",
    )
    config_files: tuple[ConfigFile, ...] = declare(
        (),
        "Local files to send with the job in a ConfigMap, one file:/path per line",
        Parts("FILE:/PATH", ConfigFile.from_text),
        flags="--config-file",
        placeholder="file:/path",
    )
    log_dir: str = declare(
        "",
        "Directory in the pods with TensorBoard event files, for the curves",
        types.FOLDER,
        title="Event files",
        flags="--logdir",
        placeholder="none, or e.g. /workspace/logs",
    )
    tensorboard: bool = declare(
        False, "Run TensorBoard on the event files while the job exists", Switch(), title="TensorBoard"
    )
    tensorboard_image: str = declare(
        "", "Image of TensorBoard", types.IMAGE, title="TensorBoard image", placeholder="the default"
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
        "Variables from secret/NAME, configmap/NAME or VARIABLE=secret/NAME/KEY, one per line",
        Parts("SOURCE", EnvSource.from_text),
        placeholder="WANDB_API_KEY=secret/wandb/key",
    )

    priority_class: str = declare(
        "", "PriorityClass of the pods", types.OBJECT_NAME, flags="--priority -p", placeholder="none"
    )
    queue: str = declare(
        "",
        "Kueue LocalQueue that admits the job",
        types.OBJECT_NAME,
        flags="--kueue-queue",
        placeholder="none",
    )
    kube_queue: bool = declare(
        False, "Hold the job until kube-queue releases it", Switch(), title="kube-queue", flags="--queue"
    )
    gang: bool = declare(
        False, "Start all pods together or none (needs a scheduler with pod groups)", Switch()
    )
    scheduler: str = declare(
        "", "Scheduler that places the pods", types.OBJECT_NAME, placeholder="the default"
    )
    node_selector: Mapping[str, str] = declare(
        {},
        "Labels of the nodes to run on, one name=value per line",
        types.LABELS,
        flags="--selector",
        placeholder="gpu=a100",
    )
    excluded_nodes: tuple[str, ...] = declare(
        (),
        "Nodes not to run on, one per line",
        types.NODES,
        title="Exclude nodes",
        flags="--exclude-node",
        placeholder="none",
    )
    tolerations: tuple[PodToleration, ...] = declare(
        (),
        "Taints to tolerate, one key=value:effect per line; all for any",
        Parts("TAINT", PodToleration.from_text),
        flags="--toleration",
        placeholder="key=value:NoSchedule",
    )
    host_namespaces: tuple[str, ...] = declare(
        (),
        "Namespaces of the node to use, one of network, ipc and pid per line",
        types.HOST_NAMESPACES,
        flags="--host-namespace",
        placeholder="none",
    )
    run_as_user: int | None = declare(
        None,
        "User ID of the processes",
        OptionalNumber(Number(0, 2**31 - 1)),
        title="User ID",
        placeholder="as in the image",
    )

    retries: int = declare(0, "Retries before the job fails (backoffLimit)", Number(0, 1000), flags="--retry")
    restart_policy: str = declare("", "When to restart a pod that ended", types.RESTART_POLICIES)
    running_timeout_s: int = declare(
        0,
        "Maximum run time, after which the job fails, e.g. 90m or 2d",
        Duration(),
        title="Time limit",
        flags="--running-timeout",
        placeholder="none",
    )
    ttl_s: int = declare(
        0,
        "Delete the job this long after it finished, e.g. 7d",
        Duration(),
        title="TTL after finished",
        flags="--ttl-after-finished",
        placeholder="keep",
    )
    clean_pods: str = declare(
        "None",
        "Pods to delete, with their logs, when the job ends (cleanPodPolicy)",
        types.CLEAN_PODS,
        flags="--clean-task-policy",
    )
    suspend: bool = declare(
        False, "Create the job suspended; resume to start it", Switch(), title="Suspended"
    )
    labels: Mapping[str, str] = declare(
        {}, "One name=value per line", types.LABELS, flags="--label -l", placeholder="team=vision"
    )
    annotations: Mapping[str, str] = declare(
        {}, "One name=value per line", types.ANNOTATIONS, flags="--annotation -a", placeholder="name=value"
    )
    user: str = declare("", "User who submits the job", Text("NAME"))


JOB_FIELDS: Mapping[str, JobField] = fields_of(JobSpec)
