"""Ranks, as torchrun, an operator, Open MPI, MPICH, Slurm or nobody gives them."""

import pytest

from trainer.master import find_master
from trainer.messages import InvalidArguments
from trainer.ranks import Ranks, job_name

MEETING = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


def test_a_process_started_alone_is_the_first_and_only_one() -> None:
    ranks = Ranks.from_env({})
    assert ranks == Ranks(0, 1, 0, 1, "alone")
    assert ranks.is_first


def test_torchrun_gives_global_and_local_ranks() -> None:
    env = MEETING | {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    ranks = Ranks.from_env(env | {"TORCHELASTIC_RUN_ID": "none", "PET_NPROC_PER_NODE": "4"})
    assert ranks == Ranks(5, 8, 1, 4, "torchrun")
    assert not ranks.is_first
    assert not ranks.is_first_here


def test_the_operators_environment_means_one_process_a_pod() -> None:
    ranks = Ranks.from_env(MEETING | {"RANK": "1", "WORLD_SIZE": "2"})
    assert ranks == Ranks(1, 2, 0, 1, "the environment")


def test_open_mpi_inside_a_pod_wins_over_the_pods_own_rank() -> None:
    env = MEETING | {"RANK": "0", "WORLD_SIZE": "1"}
    env |= {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    env |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert Ranks.from_env(env) == Ranks(3, 4, 1, 2, "Open MPI")


def test_mpich_gives_ranks_too() -> None:
    env = MEETING | {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert Ranks.from_env(env) == Ranks(1, 2, 1, 2, "MPICH")


SLURM = {
    "SLURM_JOB_ID": "812",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "gpu[03-05,9]",
}


def test_a_task_of_srun_knows_its_rank_on_its_node_and_in_the_job() -> None:
    assert Ranks.from_env(SLURM) == Ranks(5, 7, 1, 2, "Slurm")
    last = SLURM | {"SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}
    assert Ranks.from_env(last) == Ranks(6, 7, 0, 1, "Slurm")
    larger = last | {"SLURM_STEP_TASKS_PER_NODE": "2(x3),4", "SLURM_STEP_NUM_TASKS": "10"}
    assert Ranks.from_env(larger) == Ranks(6, 10, 0, 4, "Slurm")
    bare = {name: SLURM[name] for name in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")}
    assert Ranks.from_env(bare) == Ranks(5, 7, 1, 2, "Slurm")
    assert Ranks.from_env(SLURM | {"PMI_RANK": "5", "PMI_SIZE": "7"}).launcher == "Slurm"


def test_what_srun_only_helped_to_start_has_the_ranks_of_its_own_launcher() -> None:
    hydra = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert Ranks.from_env(SLURM | hydra) == Ranks(1, 4, 1, 2, "MPICH")
    torchrun = MEETING | {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    assert Ranks.from_env(SLURM | torchrun).launcher == "torchrun"


def test_a_batch_script_and_a_shell_in_an_allocation_are_alone() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "812"}
    assert Ranks.from_env(batch).launcher == "alone"
    assert Ranks.from_env(batch | {"SLURM_STEP_NUM_TASKS": "1"}).launcher == "alone"
    own = MEETING | {"RANK": "1", "WORLD_SIZE": "2"}
    assert Ranks.from_env(batch | {"SLURM_STEP_NUM_TASKS": "1"} | own) == Ranks(1, 2, 0, 1, "the environment")


def test_tasks_of_srun_meet_on_the_first_node_at_a_port_of_their_step() -> None:
    ranks = Ranks.from_env(SLURM)

    def meet(**env: str) -> tuple[str, int]:
        return find_master(ranks, SLURM | env, lambda: None)

    host, port = meet()
    assert (host, 20_000 <= port < 30_000) == ("gpu03", True)
    assert meet(SLURM_STEP_ID="1")[1] != port
    assert meet(MASTER_ADDR="10.0.0.1", MASTER_PORT="7") == ("10.0.0.1", 7)
    assert meet(SLURM_STEP_NODELIST="node-a,node-b")[0] == "node-a"
    assert meet(SLURM_STEP_NODELIST="r[1-2]c[08,11]n1,x")[0] == "r1c08n1"
    with pytest.raises(InvalidArguments, match="Export MASTER_ADDR"):
        meet(SLURM_STEP_NODELIST="")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 but WORLD_SIZE is 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is -1 but WORLD_SIZE is 2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is 'one', which is not a whole number"),
        ({"RANK": "1"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "LOCAL_RANK is 1 but LOCAL_WORLD_SIZE is 1"),
        (
            {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "2"},
            "LOCAL_WORLD_SIZE is 2 but WORLD_SIZE is only 1",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"RANK": "0", "WORLD_SIZE": "4", "PET_NPROC_PER_NODE": "2"}, "Start the trainer with torchrun"),
    ],
)
def test_an_environment_that_contradicts_itself_is_refused_in_words(env: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        Ranks.from_env(MEETING | env)


def test_a_job_of_one_needs_no_master_address() -> None:
    assert Ranks.from_env({"RANK": "0", "WORLD_SIZE": "1"}).world_size == 1


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"HOSTNAME": "ddp-digits-1-master-0"}, "ddp-digits-1"),
        ({"HOSTNAME": "ddp-digits-1-worker-12"}, "ddp-digits-1"),
        ({"HOSTNAME": "digits-3", "JOB_COMPLETION_INDEX": "3"}, "digits"),
        ({"HOSTNAME": "digits-3-x7k2p", "JOB_COMPLETION_INDEX": "3"}, "digits"),
        ({"HOSTNAME": "digits-1-3-x7k2p", "JOB_COMPLETION_INDEX": "3"}, "digits-1"),
        ({"HOSTNAME": "gpu-box-3"}, ""),
        ({"HOSTNAME": "odd", "JOB_COMPLETION_INDEX": "(["}, ""),
    ],
)
def test_a_pod_knows_its_job_by_its_own_name_and_a_machine_has_none(env: dict[str, str], name: str) -> None:
    assert job_name(env) == name
