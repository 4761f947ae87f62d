"""Advice before a job is created: its size, where it fits, where its files go, its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.gpus.links import MACHINES
from k8s.kinds.job_spec import JobSpec
from k8s.models import Taint
from k8s.snapshot import ClusterSnapshot, Holder
from tests.support.new_job_form import cluster, command, form_values, job, node
from trainer.catalogue import Launcher, find
from tui.draft.job_draft import parse_values
from tui.draft.preflight import describe_batch, line_text, preflight

NEEDS = "would never start: master-0 needs"
MPI, OLD = {"kind": "MPIJob", "run": "mpi"}, {"kind": "MPIJob v1alpha1"}
FOUR_SLOTS = {"workers": "2", "gpus": "1", "slots": "4"}
FOUR_PODS = {**MPI, "gpus": "1", "workers": "4"}


def said(values: dict[str, str], snapshot: ClusterSnapshot) -> dict[str, str]:
    """Return the severity of each preflight line, by its text."""
    return {
        line_text(line): line.severity
        for line in preflight(parse_values(values), snapshot, ["workspace"], "default")
    }


def test_preflight_reports_a_job_that_fits_now() -> None:
    words = said(form_values(workers="2"), cluster(node("a", 4, 2), node("b", 4)))
    assert words["2 × 1 GPU: fits now on a; 6 of 8 GPUs free, largest free block 4"] == "ok"
    assert words["2 pods × 1 GPU, 1 process per pod = 2 ranks"] == "info"
    assert words["writes to /workspace/bert-1 on volume claim workspace"] == "info"


def test_preflight_rejects_a_global_batch_larger_than_the_dataset() -> None:
    words = said(form_values(workers="2", **{"ddp.batch-size": "6001"}), cluster(node("a", 4, 2)))
    assert [severity for text, severity in words.items() if "12,002 images" in text] == ["error"]
    assert not any("images" in text for text in said(form_values(workers="2"), cluster(node("a", 4, 2))))


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({"workers": "3", "gpus": "2"}, "3 pods × 2 GPUs, 2 processes per pod = 6 ranks"),
        ({"gpus": "0"}, "1 pod × no GPU, 1 process per pod = 1 rank"),
        ({**MPI, "workers": "3", "gpus": "2"}, "3 pods × 2 GPUs and launcher, 2 slots per pod = 6 ranks"),
        ({**MPI, "workers": "3", "gpus": "0"}, "3 pods × no GPU and launcher, 1 slot per pod = 3 ranks"),
        ({**MPI, **FOUR_SLOTS}, "2 pods × 1 GPU and launcher, 4 slots per pod = 8 ranks"),
        ({**MPI, **OLD, **FOUR_SLOTS}, "2 pods × 1 GPU and launcher, 1 slot per pod = 2 ranks"),
        ({"kind": "Job", "gpus": "1"}, "1 pod × 1 GPU"),
    ],
)
def test_the_first_line_counts_pods_and_ranks(values: dict[str, str], size: str) -> None:
    lines = preflight(parse_values(form_values(**values)), cluster())
    assert (lines[0].severity, lines[0].text) == ("info", size)
    assert not any("on its own" in line.text for line in lines)


def test_the_fit_line_names_the_nodes_and_the_largest_block() -> None:
    nodes = [node(name, 4) for name in "abcdef"]
    words = said(form_values(workers="4", gpus="4"), cluster(*nodes, node("g", 8, 6)))
    text = "4 × 4 GPUs: fits now on a, b, c and 1 more; 26 of 32 GPUs free, largest free block 4"
    assert words[text] == "ok"
    words = said(form_values(workers="3", gpus="4"), cluster(*nodes[:3]))
    assert words["3 × 4 GPUs: fits now on a, b, c; 12 of 12 GPUs free, largest free block 4"] == "ok"


def test_the_fit_line_respects_excluded_nodes_and_tolerations() -> None:
    words = said(form_values(excluded_nodes="a"), cluster(node("a", 4), node("b", 2)))
    assert words["1 × 1 GPU: fits now on b; 2 of 2 GPUs free, largest free block 2"] == "ok"
    words = said(form_values(excluded_nodes="a"), cluster(node("a", 4)))
    text = "would never start: no node matches: master-0 asks for kubernetes.io/hostname"
    assert [severity for line, severity in words.items() if line.startswith(text)] == ["error"]
    tainted = replace(node("a", 4), taints=(Taint("team", "nlp", "NoSchedule"),))
    words = said(form_values(tolerations="team=nlp:NoSchedule"), cluster(tainted))
    assert words["1 × 1 GPU: fits now on a; 4 of 4 GPUs free, largest free block 4"] == "ok"


@pytest.mark.parametrize(
    ("values", "text", "severity"),
    [
        ({}, "1 × 1 GPU: fits now on a; 4 of 4 GPUs free, largest free block 4", "ok"),
        (
            {"node_selector": "gpu=none"},
            "would never start: no node with gpu=none has nvidia.com/gpu: master-0 needs 1",
            "error",
        ),
        ({"workers": "2", "gpus": "4"}, "would never fit: 2 pods need 4 nvidia.com/gpu each", "error"),
    ],
)
def test_the_fit_line_counts_only_nodes_with_the_labels(
    values: dict[str, str], text: str, severity: str
) -> None:
    nodes = (
        replace(node("a", 4), labels={"gpu": "a100", "kubernetes.io/hostname": "a"}),
        node("b", 8),
        replace(node("c", 0), resources={}, labels={"gpu": "none"}),
    )
    words = said(form_values(**{"node_selector": "gpu=a100", **values}), cluster(*nodes))
    assert [found for line, found in words.items() if line.startswith(text)] == [severity]
    assert ("ok" in words.values()) == (severity == "ok")


@pytest.mark.parametrize(
    ("machines", "held", "values", "words"),
    [
        (
            {"node-a": "pcie", "node-b": "dgx-a100"},
            {"node-a": (0, 1, 2, 3), "node-b": (0, 1, 2, 3)},
            {"gpus": "4"},
            "node-b: 4 free, NVLink-connected; node-a: 4 free over PCIe, expect about half",
        ),
        (
            {"a": "dgx-1v", "b": "dgx-1v"},
            {"a": (1, 3, 5, 7), "b": (0, 1)},
            {"gpus": "4"},
            "b: 6 free, 4 of them NVLink-connected; a: 4 free over PCIe, expect about half",
        ),
        ({"a": "pcie"}, {}, {"gpus": "2"}, "a: 8 free, 2 of them over PCIe"),
        ({"a": "dgx-1v"}, {}, FOUR_PODS, "a: 8 free, 4 of them NVLink-connected"),
        (
            {"a": "pcie", "b": "dgx-1v"},
            {"b": (2, 3, 4, 5, 6, 7)},
            {"gpus": "2"},
            "b: 2 free, NVLink-connected; a: 8 free, 2 of them over PCIe",
        ),
        (
            {"a": "dgx-a100", "b": "pcie"},
            {"a": (0, 1, 2, 3, 4, 5)},
            FOUR_PODS,
            "b: 8 free, 4 of them over PCIe",
        ),
    ],
    ids=["guide", "which are free", "no NVLink", "pods of one GPU", "NVLink first", "not all pods"],
)
def test_preflight_describes_the_gpu_links_of_each_node(
    machines: dict[str, str], held: dict[str, tuple[int, ...]], values: dict[str, str], words: str
) -> None:
    nodes = []
    for name in machines:
        devices = held.get(name, ())
        holder = Holder("default", "p", "bert", len(devices), {}, devices=devices)
        found = node(name, 8, len(devices))
        nodes.append(replace(found, holders=(holder,) if devices else ()))
    links = {name: MACHINES[machine].matrix() for name, machine in machines.items()}
    parsed = parse_values(form_values(**values))
    lines = {line.text: line.severity for line in preflight(parsed, cluster(*nodes), links=links)}
    assert lines[words] == "info"
    without = said(form_values(**values), cluster(*nodes))
    assert not any("free," in text for text in without if "GPUs free" not in text)


def test_gpu_links_are_described_conservatively_if_the_free_devices_are_unknown() -> None:
    found = node("a", 8, 4)
    held = replace(found, holders=(Holder("default", "p", "bert", 4, {}),))
    parsed = parse_values(form_values(gpus="4"))
    for machine, words in (
        ("dgx-1v", "a: 4 free, NVLink-connected in part"),
        ("dgx-h100", "a: 4 free, NVLink-connected"),
        ("pcie", "a: 4 free over PCIe"),
    ):
        lines = preflight(parsed, cluster(held), links={"a": MACHINES[machine].matrix()})
        assert words in [line.text for line in lines]


def test_gpu_links_of_ineligible_nodes_are_not_described() -> None:
    links = {name: MACHINES["dgx-a100"].matrix() for name in "abc"}
    nodes = (node("a", 8, status="Ready, cordoned"), node("b", 8), node("c", 8, resource="other/gpu"))
    parsed = parse_values(form_values(gpus="4", excluded_nodes="b"))
    lines = preflight(parsed, cluster(*nodes), links=links)
    assert not any("NVLink" in line.text for line in lines)


def test_a_gpu_topology_job_is_checked_against_the_aliyun_gpu_resource() -> None:
    values = form_values(kind="MPIJob v1alpha1", run="mpi", gpus="1", workers="4", gpu_topology="true")
    plain = said(values, cluster(node("a", 8)))
    text = "would never start: no node has aliyun.com/gpu: each of 4 pods needs 1 aliyun.com/gpu"
    assert [severity for line, severity in plain.items() if line.startswith(text)] == ["error"]
    assert plain["label a node ack.node.gpu.schedule=topology (t on a node)"] == "info"
    words = said(values, cluster(node("a", 8, resource="aliyun.com/gpu")))
    assert words["4 × 1 GPU: fits now on a; 8 of 8 GPUs free, largest free block 8"] == "ok"


def test_gpu_links_of_a_tainted_node_are_described_only_if_tolerated() -> None:
    team = replace(node("a", 8, status="Ready, tainted"), taints=(Taint("team", "nlp", "NoSchedule"),))
    links = {"a": MACHINES["dgx-a100"].matrix()}
    for tolerations, is_told in (("team=nlp:NoSchedule", True), ("", False)):
        parsed = parse_values(form_values(gpus="4", tolerations=tolerations))
        lines = preflight(parsed, cluster(team), links=links)
        assert any("NVLink" in line.text for line in lines) == is_told


def test_only_the_gpu_taint_is_tolerated_by_default() -> None:
    dedicated, of_gpus = Taint("team", "nlp", "NoSchedule"), Taint("nvidia.com/gpu", "", "NoSchedule")
    words = said(form_values(), cluster(replace(node("a", 4), taints=(of_gpus, dedicated))))
    text = f"{NEEDS} 1 nvidia.com/gpu; no node that is large enough accepts it (1 node tainted)"
    assert [severity for line, severity in words.items() if line.startswith(text)] == ["error"]
    words = said(form_values(), cluster(replace(node("a", 4), taints=(of_gpus,))))
    assert words["1 × 1 GPU: fits now on a; 4 of 4 GPUs free, largest free block 4"] == "ok"


def test_an_unavailable_gpu_resource_is_reported_with_the_available_ones() -> None:
    words = said(form_values(), cluster(node("a", 4, resource="amd.com/gpu")))
    text = "would never start: no node has nvidia.com/gpu: master-0 needs 1 nvidia.com/gpu"
    (line,) = (line for line in words if line.startswith(text))
    assert words[line] == "error" and "a resource that the nodes have (amd.com/gpu)" in line


def test_an_uncounted_resource_is_reported_as_unknown_rather_than_missing() -> None:
    bare = replace(node("a", 0), resources={})
    found = replace(bare, allocatable={**bare.allocatable, "example.com/fpga": "2"})
    words = said(form_values(gpu_resource="example.com/fpga"), cluster(found))
    assert words["cannot tell whether it fits now: example.com/fpga is not counted as a GPU"] == "info"


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (ClusterSnapshot(), "cannot tell yet whether it fits: still listing nodes"),
        (cluster(problems={"nodes": "no"}), "cannot tell whether it fits: you may not list nodes"),
        (cluster(node("a", 1), stale="gone"), "cluster unreachable: free GPUs may have changed"),
    ],
)
def test_preflight_makes_no_fit_claim_without_current_node_data(
    snapshot: ClusterSnapshot, words: str
) -> None:
    assert words in said(form_values(), snapshot)


def test_simulated_gpus_are_called_simulated() -> None:
    words = said(form_values(), cluster(replace(node("a", 8), is_simulated=True)))
    assert "1 × 1 GPU: fits now on a; 8 of 8 GPUs free (simulated), largest free block 8" in words


def test_processes_that_share_or_waste_gpus_give_a_warning() -> None:
    assert said(form_values(processes="4"), cluster())["4 processes share 1 GPU in each pod"] == "warning"
    words = said(form_values(gpus="4", processes="1"), cluster())
    assert words["3 of 4 GPUs in each pod may be idle"] == "warning"


def test_a_multi_gpu_command_without_torchrun_gives_a_warning() -> None:
    words = "the command must start the processes itself, e.g. with torchrun"
    assert said(command("python train.py", gpus="2"), cluster())[words] == "warning"
    assert words not in said(command("torchrun train.py", gpus="2"), cluster())


def test_a_multi_worker_batch_job_warns_that_pods_get_no_ranks() -> None:
    words = said(form_values(kind="Job", workers="2"), cluster())
    assert words["pods of a Job get no ranks: each trains on its own"] == "warning"


def test_ephemeral_output_and_missing_claims_give_a_warning() -> None:
    words = said(form_values(claim=""), cluster())
    assert words["no volume claim: its files are lost with its pods"] == "warning"
    missing = "would wait for volume claim scratch, which does not exist in default"
    assert said(form_values(claim="scratch"), cluster())[missing] == "warning"
    for claims, namespace in ((None, "default"), (["workspace"], "vision")):
        lines = preflight(parse_values(form_values(claim="scratch")), cluster(), claims, namespace)
        assert missing not in map(line_text, lines)


def test_preflight_reports_an_existing_job_name() -> None:
    found = said(form_values(), cluster(jobs=(job("bert-1"),)))
    assert found["would be refused: PyTorchJob bert-1 already exists in default"] == "error"


@pytest.mark.parametrize("text", ["9" * 30, "9999", "-1", "many", ""])
@pytest.mark.parametrize(("key", "label"), [("gpus", "GPUs"), ("workers", "Workers")])
def test_an_invalid_gpu_or_worker_count_gives_no_fit_claim(key: str, label: str, text: str) -> None:
    lines = list(said(form_values(**{key: text}), cluster(node("a", 8))))
    assert not any("GPU" in line and line != f"cannot tell the size: {label} is not valid" for line in lines)
    assert lines[0] == f"cannot tell the size: {label} is not valid"


@pytest.mark.parametrize("key", ["name", "claim", "mount_path", "namespace"])
def test_a_long_name_does_not_fill_the_summary(key: str) -> None:
    text = "/" * (key == "mount_path") + "x" * 300
    lines = said(form_values(**{key: text}), cluster(node("a", 8), jobs=(job("x" * 300),)))
    assert max(map(len, lines)) <= 150
    assert any("x…" in line or "…x" in line for line in lines) or key == "namespace"


def words(
    arguments: Sequence[str] = (), trainer: str = "ddp", launcher: Launcher = "torchrun", **more: Any
) -> str:
    ranks = more.pop("ranks", None)
    command = find(trainer).command(arguments, launcher=launcher, ranks=ranks)
    return describe_batch(JobSpec(name="a", image="i", trainer=trainer, command=tuple(command), **more))


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ((), {}),
        (("--batch-size", "3000"), {"workers": 2, "processes": 2}),
        (("--dataset", "mnist", "--batch-size=60000"), {}),
        (("--batch-size", "x"), {"workers": 4000}),
        (("--batch-size", "1", "--model", "resnet18"), {"workers": 4000, "processes": 8}),
        (("--batch-size", "1000000"), {"trainer": "mpi", "workers": 8}),
    ],
)
def test_no_batch_warning_if_there_are_enough_images_or_the_count_is_unknown(
    arguments: Sequence[str], more: dict[str, Any]
) -> None:
    assert words(arguments, **more) == ""


def test_too_few_images_are_counted_over_all_ranks() -> None:
    assert words(("--batch-size", "3001"), workers=2, processes=2) == (
        "would fail: a step takes 3,001 × 4 ranks = 12,004 images, and there are 12,000; "
        "choose a smaller batch size"
    )
    assert "there are 60,000" in words(("--dataset", "mnist", "--batch-size", "60001"))
    assert "there are 10;" in words(("--train-images=10",))


def test_the_batch_check_takes_the_rank_count_from_mpirun() -> None:
    assert "64 × 500 ranks" in words((), launcher="mpirun", ranks=500)
    assert words((), launcher="mpirun", ranks=2, workers=4000) == ""


def test_the_batch_check_ignores_a_custom_command() -> None:
    assert describe_batch(JobSpec(name="a", image="i", trainer="ddp", command=("true",), workers=4000)) == ""
