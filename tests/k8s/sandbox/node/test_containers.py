"""From a manifest to a process: which paths, variables and addresses are replaced, and which never."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from k8s.sandbox.controller_runtime import PROCESSES
from k8s.sandbox.node.containers import CannotStart, ContainerContext, expand, launch_of
from k8s.sandbox.node.nodes import Ports, ephemeral
from k8s.sandbox.node.programs import PROGRAMS
from k8s.sandbox.paths import Launch, rewrite

DIRECT = "localhost,127.0.0.1,::1"
MOUNTS = (("/workspace/deep", "/real/b"), ("/workspace", "/real/a"), ("/mnt/x.y", "/real/c"))


def context(**changes: Any) -> ContainerContext:
    usual: dict[str, Any] = {
        "scratch": Path("/scratch"),
        "bin": Path("/bin-of-pods"),
        "volumes": {},
        "gpus": (),
        "is_simulated": True,
        "names": frozenset({"bert-master-0", "bert-worker-0"}),
        "port": 20001,
        "cores": 4,
        "python_path": Path("/python-of-pods"),
        "texts": {},
    }
    return ContainerContext(**(usual | changes))


def pod(*command: str, **container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "command": list(command), **container}]}
    return {"metadata": {"name": "bert-worker-0", "namespace": "default", "uid": "u"}, "spec": spec}


def launched(manifest: dict[str, Any], where: ContainerContext | None = None) -> Launch:
    return launch_of(manifest, manifest["spec"]["containers"][0], where or context())


def env_of(**env: str) -> Any:
    return launched(pod("true", env=[{"name": name, "value": value} for name, value in env.items()])).env


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/workspace", "/real/a"),
        ("/workspace/", "/real/a/"),
        ("/workspace/train.py", "/real/a/train.py"),
        ("/workspace/deep/x", "/real/b/x"),
        ("/workspaces/x", "/workspaces/x"),
        ("/workspace-2", "/workspace-2"),
        ("/workspace.bak", "/workspace.bak"),
        ("my/workspace/x", "my/workspace/x"),
        ("$HOME/workspace", "$HOME/workspace"),
        ("${ROOT}/workspace", "${ROOT}/workspace"),
        ("s3://bucket/workspace", "s3://bucket/workspace"),
        ("--out=/workspace/o", "--out=/real/a/o"),
        ("a:/workspace:/workspace/deep", "a:/real/a:/real/b"),
        ("cd /workspace && ls '/workspace/deep'; cat \"/workspace/f\">/workspace/g", None),
        ("/mnt/xzy", "/mnt/xzy"),
        ("/mnt/x.y/z", "/real/c/z"),
    ],
)
def test_mount_paths_are_replaced_as_whole_parts_of_a_path(text: str, rewritten: str | None) -> None:
    if rewritten is None:
        rewritten = "cd /real/a && ls '/real/b'; cat \"/real/a/f\">/real/a/g"
    assert rewrite(text, MOUNTS) == rewritten


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("code/x.py", "/real/code/x.py"),
        ("python ./code/x.py --out=code/out 'code/a b'", None),
        ("cd code && python x.py", "cd /real/code && python x.py"),
        ("a/b", "/real/b"),
        ("--tag code", "--tag code"),
        ("mycode/x code.py /code/x ../code/x", "mycode/x code.py /code/x ../code/x"),
    ],
)
def test_a_mount_below_the_working_folder_is_found_by_its_relative_path(
    text: str, rewritten: str | None
) -> None:
    volumes = {name: Path("/real") / name for name in ("w", "code", "b")}
    paths = {"w": "/w", "code": "/w/code", "b": "/w/a/b"}
    mounts = [{"name": name, "mountPath": path} for name, path in paths.items()]
    launch = launched(pod("sh", "-c", text, workingDir="/w", volumeMounts=mounts), context(volumes=volumes))
    if rewritten is None:
        rewritten = "python /real/code/x.py --out=/real/code/out '/real/code/a b'"
    assert (launch.argv[-1], launch.cwd) == (rewritten, "/real/w")


def test_replaced_paths_are_not_replaced_again() -> None:
    assert rewrite("/a /b", [("/a", "/b"), ("/b", "/a")]) == "/b /a"


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "1$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(", "$A ${A} $("),
        ("echo $$", "echo $"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("MASTER_ADDR", "bert-master-0", "127.0.0.1"),
        ("MASTER_ADDR", "bert-master-0.default.svc.cluster.local", "127.0.0.1"),
        ("PET_MASTER_ADDR", "anything", "127.0.0.1"),
        ("MASTER_PORT", "23456", "20001"),
        ("PET_RDZV_ENDPOINT", "bert-worker-0:29400", "127.0.0.1:20001"),
        ("PEER", "bert-worker-0", "127.0.0.1"),
        ("PEER", "bert-worker-0.default.svc:80", "127.0.0.1:80"),
        ("PEER", "bert-worker-0/checkpoints", "bert-worker-0/checkpoints"),
        ("PEER", "the bert-worker-0", "the bert-worker-0"),
        ("RUN", "bert", "bert"),
        ("URL", "http://bert-worker-0:80", "http://bert-worker-0:80"),
    ],
)
def test_the_names_of_a_jobs_pods_become_this_machine(name: str, value: str, becomes: str) -> None:
    assert env_of(**{name: value})[name] == becomes


@pytest.mark.parametrize(
    ("declared", "upper", "lower"),
    [
        ({"HTTPS_PROXY": "http://cache:3128"}, DIRECT, DIRECT),
        ({"NO_PROXY": "10.0.0.0/8, .lab"}, f"10.0.0.0/8,.lab,{DIRECT}", f"10.0.0.0/8,.lab,{DIRECT}"),
        ({"NO_PROXY": ".lab,::1", "no_proxy": "lake"}, ".lab,::1,localhost,127.0.0.1", f"lake,{DIRECT}"),
        ({"no_proxy": "*"}, "*", "*"),
    ],
    ids=str,
)
def test_programs_of_a_pod_reach_loopback_without_a_proxy(
    declared: dict[str, str], upper: str, lower: str
) -> None:
    env = env_of(**declared)
    assert (env["NO_PROXY"], env["no_proxy"]) == (upper, lower)


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("python", [sys.executable]),
        ("/opt/conda/bin/python3", [sys.executable]),
        ("torchrun", [sys.executable, "-m", "torch.distributed.run"]),
        ("bash", ["bash"]),
    ],
)
def test_python_is_this_python(word: str, first: list[str]) -> None:
    launch = launched(pod(word, "x.py"))
    assert list(launch.argv) == [*first, "x.py"]


def test_programs_of_the_sandbox_come_first_on_any_path() -> None:
    assert env_of(PATH="/opt/bin")["PATH"] == "/bin-of-pods:/opt/bin"


def test_a_pod_gets_only_gpus_from_the_cuda_visible_devices_of_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-8f2a,1")
    env = launched(pod("true"), context(gpus=(1, 2), is_simulated=False)).env
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-8f2a,1"


@pytest.mark.usefixtures("every_gpu")
def test_gpus_are_named_to_cuda_only_when_they_exist() -> None:
    manifest = pod("true", env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}])
    real = launched(manifest, context(gpus=(2, 3), is_simulated=False)).env
    assert (real["CUDA_VISIBLE_DEVICES"], real["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    assert "GPUCONSOLE_SIMULATED_GPUS" not in real
    simulated = launched(manifest, context(gpus=(2, 3))).env
    assert (simulated["CUDA_VISIBLE_DEVICES"], simulated["GPUCONSOLE_SIMULATED_GPUS"]) == ("", "2,3")


@pytest.mark.parametrize(
    ("cores", "limits", "env", "threads"),
    [
        (4, {}, {}, "4"),
        (1, {}, {}, "1"),
        (4, {"cpu": "2"}, {}, "2"),
        (4, {"cpu": "2500m"}, {}, "2"),
        (4, {"cpu": "500m"}, {}, "1"),
        (4, {"memory": "1Gi"}, {}, "4"),
        (4, {}, {"PET_NPROC_PER_NODE": "2"}, "2"),
        (4, {}, {"PET_NPROC_PER_NODE": "auto"}, "4"),
        (2, {}, {"PET_NPROC_PER_NODE": "8"}, "1"),
        (4, {"cpu": "2"}, {"OMP_NUM_THREADS": "7"}, "7"),
        (4, {}, {"OMP_NUM_THREADS": ""}, ""),
    ],
)
def test_omp_num_threads_defaults_to_the_cpu_limit_or_the_share_of_the_cores(
    cores: int, limits: dict[str, str], env: dict[str, str], threads: str
) -> None:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    launch = launched(pod("true", env=variables, resources={"limits": limits}), context(cores=cores))
    assert launch.env["OMP_NUM_THREADS"] == threads


def test_the_limit_of_the_whole_pod_counts_where_its_container_has_none() -> None:
    manifest = pod("true")
    manifest["spec"]["resources"] = {"limits": {"cpu": "3"}}
    assert launched(manifest, context(cores=8)).env["OMP_NUM_THREADS"] == "3"


def test_ranks_that_share_a_pod_share_its_cores() -> None:
    manifest = pod("true")
    manifest["metadata"]["annotations"] = {PROCESSES: "4"}
    assert launched(manifest, context(cores=8)).env["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("folder", ["/", "/root", "/root/"])
def test_the_home_of_an_image_is_the_pods_own_folder(folder: str) -> None:
    assert launched(pod("true", workingDir=folder)).cwd == "/scratch"


@pytest.mark.parametrize("word", ["mpirun", "/usr/local/bin/mpirun", "/usr/sbin/sshd"])
def test_a_program_of_the_image_that_every_pod_has_is_found_wherever_it_is(word: str) -> None:
    launch = launched(pod(word))
    assert launch.argv[: len(PROGRAMS[Path(word).name])] == PROGRAMS[Path(word).name]


def test_a_folder_of_the_machine_is_used_only_when_it_is_mounted() -> None:
    mounts = [{"name": "code", "mountPath": "/home/me/code"}]
    mounted = pod("true", workingDir="/home/me/code/src", volumeMounts=mounts)
    assert launched(mounted, context(volumes={"code": None})).cwd == "/home/me/code/src"
    with pytest.raises(CannotStart, match="Mount a volume there"):
        launched(pod("true", workingDir="/home/me/code/src"))


def test_a_mount_cannot_leave_its_volume() -> None:
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "../../etc"}]
    launch = launched(pod("ls", "/data", volumeMounts=mounts), context(volumes={"v": Path("/volumes/v")}))
    assert launch.argv == ("ls", "/volumes/v/etc")


def test_a_folder_that_a_shell_would_quote_is_not_mounted() -> None:
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "li o'neil"}]
    with pytest.raises(CannotStart, match="cannot mount subPath li o'neil"):
        launched(pod("ls", "/data", volumeMounts=mounts), context(volumes={"v": Path("/volumes/v")}))


def test_each_job_has_a_port_outside_the_kernels_ephemeral_range() -> None:
    ports = Ports()
    chosen = [ports.of(f"job-{index}") for index in range(50)]
    first, last = ephemeral()
    assert len(set(chosen)) == 50
    assert not any(first <= port <= last for port in chosen)
    assert ports.of("job-7") == chosen[7]
    ports.keep({"job-7"})
    assert ports.of("job-7") == chosen[7]


@pytest.mark.parametrize("command", [("mpirun", "-np", "2", "hostname"), ("sh", "-c", "mpirun hostname")])
def test_mpirun_starts_where_its_launcher_lacks_the_volume_of_its_folder(command: tuple[str, ...]) -> None:
    assert launched(pod(*command, workingDir="/workspace")).cwd == "/scratch"
