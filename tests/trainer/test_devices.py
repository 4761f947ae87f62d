"""Device of each rank: the GPU of its place on the node, or a message why there is none."""

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist

from tests.trainer.jobs import free_port
from trainer.catalogue import find
from trainer.distributed.process_group import ProcessGroup, choose_device
from trainer.messages import InvalidArguments, TooFewGpus, TrainingError
from trainer.ranks import Ranks
from trainer.signals import StopRequest
from trainer.train_ddp import run


@pytest.mark.parametrize("backend", ["nccl", "mpi"])
def test_an_unavailable_backend_is_rejected_for_a_single_rank_too(backend: str) -> None:
    with pytest.raises(InvalidArguments, match=f"--backend {backend}: "):
        ProcessGroup(Ranks(0, 1, 0, 1, "alone"), torch.device("cpu"), 200, backend)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A torch that finds two GPUs, and notes which of them is taken."""
    taken: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    return taken


def test_each_process_of_a_node_takes_the_gpu_of_its_place_there(two_gpus: list[Any]) -> None:
    for name in ("auto", "cuda"):
        assert choose_device(name, Ranks(3, 4, 1, 2, "torchrun")) == torch.device("cuda", 1)
    assert two_gpus == [torch.device("cuda", 1)] * 2
    assert choose_device("cpu", Ranks(3, 4, 1, 2, "torchrun")) == torch.device("cpu")


@pytest.mark.parametrize("local_rank", [0, 2])
def test_more_processes_than_gpus_end_all_of_the_node_at_once_with_a_status_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], two_gpus: list[Any], local_rank: int
) -> None:
    ranks = {"RANK": local_rank, "WORLD_SIZE": 3, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": 3}
    meet = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in (ranks | meet).items():
        monkeypatch.setenv(name, str(value))
    assert run(find("ddp").parser().parse_args([]), StopRequest()) == 6
    assert capsys.readouterr().err == (
        "error: The job has 3 processes here, but there are only 2 GPUs. Each needs one of its own."
        " Start as many processes as there are GPUs, or use --device cpu.\n"
    )
    assert two_gpus == []


def test_ranks_sharing_a_gpu_get_a_too_few_gpus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_more: object) -> None:
        raise dist.DistBackendError(
            "NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details)\n"
            "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
        )

    group = ProcessGroup(Ranks(0, 2, 0, 1, "the environment"), torch.device("cpu"), 200)
    monkeypatch.setattr(group, "_wait_for_all", dist.HashStore)  # type: ignore[attr-defined]
    monkeypatch.setattr(dist, "init_process_group", refuse)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    with pytest.raises(TooFewGpus, match=r"(?s)same GPU.*both on CUDA device 60.*or use --device cpu"):
        group.init()


def test_ranks_with_mixed_devices_fail_with_the_same_error_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    said: dict[int, TrainingError] = {}

    def join(rank: int, device: str) -> None:
        try:
            ProcessGroup(Ranks(rank, 2, 0, 1, "the environment"), torch.device(device), 200).init()
        except TrainingError as error:
            said[rank] = error

    ranks = [threading.Thread(target=join, args=each) for each in enumerate(("cpu", "cuda"))]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert {type(each) for each in said.values()} == {TooFewGpus}
    assert str(said[0]) == str(said[1])
    assert str(said[0]).startswith("Rank 1 computes on a GPU, but rank 0 has none.")
