"""How the options of DDP reach it."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

import torch.distributed as dist  # noqa: E402

from trainer.ddp.models import make_model  # noqa: E402
from trainer.ddp.step.parallel import ParallelOptions, make_parallel, reorders_sums  # noqa: E402
from trainer.distributed.process_group import ProcessGroup  # noqa: E402
from trainer.ranks import Ranks  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture
def torch_group() -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("torch_group")
def test_what_is_chosen_of_ddp_reaches_it_and_by_itself_it_keeps_gradients_in_its_buckets() -> None:
    for options, expected in (
        (ParallelOptions(), (25, True, False)),
        (
            ParallelOptions(bucket_mb=3, is_static_graph=True, copies_buckets=True),
            (3, False, True),
        ),
    ):
        group = ProcessGroup(Ranks(0, 2, 0, 1, "torchrun"), CPU, 1)
        ddp: Any = make_parallel(make_model("lenet"), group, options)
        found = ddp.bucket_bytes_cap / 2**20, ddp.gradient_as_bucket_view, ddp.static_graph
        assert found == expected
        assert not reorders_sums(ddp, group), "of two ranks the order of a sum does not matter"
        assert reorders_sums(ddp, ProcessGroup(Ranks(0, 3, 0, 1, "torchrun"), CPU, 1))


def test_a_process_alone_has_its_network_bare() -> None:
    network, group = make_model("lenet"), ProcessGroup(Ranks(0, 1, 0, 1, "alone"), CPU, 1)
    assert make_parallel(network, group, ParallelOptions()) is network
    assert not reorders_sums(network, group)
