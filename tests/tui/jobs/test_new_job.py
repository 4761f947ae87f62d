"""The new-job form without a screen: values to a spec and back, the preflight, the draft."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.job_spec import JobSpec, Mount
from k8s.job_spec.field_types import LONGEST_TEXT
from k8s.kinds import CREATABLE, JobRef
from k8s.models import Taint
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, Share
from k8s.status import Status
from k8s.text.yaml_writer import to_yaml
from trainer.catalogue import TRAINERS, find
from tui.jobs.new_job.draft import (
    FILE,
    DraftError,
    context_folder,
    delete_draft,
    last_image,
    read_draft,
    save_draft,
    save_last_image,
)
from tui.jobs.new_job.fields import COMMAND, JOB_FORM_FIELDS, default_values, trainer_fields
from tui.jobs.new_job.form_spec import base_name, field_key, parse_values, values_from_spec
from tui.jobs.new_job.form_state import FormState
from tui.jobs.new_job.preflight import PreflightLine, preflight

KEYS = sorted(default_values())
TEXT = st.text(max_size=60) | st.sampled_from(
    [
        "",
        "0",
        "1",
        "8",
        "-1",
        "9" * 400,
        "٣",
        "workspace",
        "A=1\nB=2",
        "[/b]",
        "\ud800",
        '"',
        "=",
        "a:/b",
        COMMAND,
    ]
)


def form_values(**values: str) -> dict[str, str]:
    return {**default_values(), "name": "bert-1", "claim": "workspace", **values}


def command(line: str, **values: str) -> dict[str, str]:
    return form_values(run=COMMAND, command=line, **values)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), TEXT))
def test_any_values_become_a_spec_or_a_sentence_for_each_wrong_field(values: dict[str, str]) -> None:
    result = parse_values(values, "li")
    assert all(sentence for sentence in result.problems.values())
    assert set(result.problems) <= {*KEYS, *values, "command", "run"}
    assert preflight(result, ClusterSnapshot())
    if "\ud800" not in "".join(values.values()):
        assert to_yaml(result.kind.manifest(result.spec))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), TEXT))
def test_a_job_without_problems_is_the_same_job_when_it_is_cloned(values: dict[str, str]) -> None:
    result = parse_values(form_values(**values), "li")
    if not result.problems:
        assert parse_values(values_from_spec(result.spec, result.kind), "li").spec == result.spec


@settings(max_examples=50, deadline=None)
@given(
    env=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(max_size=30)),
    words=st.lists(st.text(alphabet="ab '\"$\\-=", min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_any_environment_survives_a_clone(env: dict[str, str], words: list[str]) -> None:
    spec = JobSpec(name="a", image="i", command=("sh", "-c", "echo " + "".join(words).strip()), env=env)
    again = parse_values(values_from_spec(spec, CREATABLE[0])).spec
    assert again.env == env


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_each_line_of_the_environment_is_a_variable(end: str) -> None:
    assert parse_values(form_values(env=f"A=1{end}B=two words{end}")).spec.env == {"A": "1", "B": "two words"}
    assert parse_values(form_values(more_volumes=f"a:/a{end}b:/b")).spec.mounts[1:] == (
        Mount("a", "/a"),
        Mount("b", "/b"),
    )


def test_defaults_with_a_name_are_ready_to_be_created() -> None:
    result = parse_values(form_values())
    assert result.problems == {}
    assert result.spec.trainer == TRAINERS[0].name
    assert result.spec.mounts == (Mount("workspace", "/workspace"),)
    assert result.spec.working_dir == "/workspace"
    assert result.spec.log_dir == "/workspace/bert-1/logs"
    words = result.spec.command
    assert words[words.index("--log-dir") + 1] == "/workspace/bert-1/logs"
    assert words[words.index("--checkpoint-dir") + 1] == "/workspace/bert-1/checkpoints"


def test_without_a_claim_a_trainer_writes_to_its_scratch_folder() -> None:
    spec = parse_values(form_values(claim="")).spec
    assert spec.mounts == ()
    assert spec.log_dir == "logs"
    assert "--log-dir" not in spec.command
    assert spec.working_dir == ""


def test_the_benchmark_runs_under_torchrun_and_is_cloned_as_the_trainer_it_is() -> None:
    values = form_values(run="mpi", **{"mpi.model": "vgg16", "mpi.fp16-allreduce": "true"})
    result = parse_values(values)
    assert result.problems == {}
    assert (result.spec.trainer, result.spec.log_dir) == ("mpi", "/workspace/bert-1/logs")
    assert list(result.spec.command) == [
        *("python", "-P", "-m", "trainer.launch", "-m", "trainer.train_mpi"),
        *("--model", "vgg16", "--fp16-allreduce", "--log-dir", "/workspace/bert-1/logs"),
    ]
    again = values_from_spec(result.spec, result.kind)
    assert {key: again[key] for key in ("run", "mpi.model", "mpi.fp16-allreduce")} == {
        "run": "mpi", "mpi.model": "vgg16", "mpi.fp16-allreduce": "true",
    }  # fmt: skip
    assert base_name(values) == "mpi"


def test_the_form_has_an_mpi_job_start_its_ranks_by_mpirun_and_clones_it_as_the_trainer_it_is() -> None:
    values = form_values(run="mpi", kind="MPIJob", workers="2", gpus="0", slots="2", **{"mpi.model": "tiny"})
    result = parse_values(values)
    assert result.problems == {}
    assert list(result.spec.command) == [
        *(
            "mpirun",
            "--allow-run-as-root",
            "--tag-output",
            "-np",
            "4",
            "python",
            "-P",
            "-m",
            "trainer.train_mpi",
        ),
        *("--model", "tiny", "--log-dir", "/workspace/bert-1/logs"),
    ]
    spec, _ = result.kind.spec_from_manifest(result.kind.manifest(result.spec))
    again = values_from_spec(spec, result.kind)
    assert (again["run"], again["mpi.model"]) == ("mpi", "tiny")
    assert parse_values({**again, "workers": "3"}).spec.command[4] == "6"
    assert parse_values({**values, "gpus": "8", "slots": ""}).spec.command[4] == "16"


def test_the_benchmark_writes_event_files_only_where_they_outlive_the_pod() -> None:
    result = parse_values(form_values(run="mpi", claim="", working_dir=""))
    assert result.spec.log_dir == ""
    assert "--log-dir" not in result.spec.command


def test_what_only_mpirun_needs_has_no_field_where_torchrun_starts_the_ranks() -> None:
    keys = [each.key for part in trainer_fields(find("mpi")) for each in part]
    assert "mpi.model" in keys
    assert not {"mpi.master-addr", "mpi.master-port", "mpi.log-dir"} & set(keys)


def test_processes_follow_the_gpus_until_they_are_typed() -> None:
    assert parse_values(form_values(gpus="4")).spec.processes == 4
    assert parse_values(form_values(gpus="0")).spec.processes == 1
    assert parse_values(form_values(gpus="4", processes="2")).spec.processes == 2


def test_arguments_of_a_trainer_are_checked_by_the_catalogue() -> None:
    result = parse_values(form_values(**{"ddp.epochs": "many", "ddp.lr": "-1", "ddp.dataset": "cats"}))
    assert result.problems["ddp.epochs"].startswith("'many' is not")
    assert result.problems["ddp.lr"].startswith("-1 is ")
    assert result.problems["ddp.dataset"].startswith("'cats' is ")
    assert "--epochs" not in result.spec.command


def test_mnist_needs_a_folder() -> None:
    result = parse_values(form_values(**{"ddp.dataset": "mnist", "ddp.data": ""}))
    assert "directory" in result.problems["ddp.data"]


@pytest.mark.parametrize("text", ["", "two", "1.5", "-1", "٣", "1e3", "0x2", "1_000"])
def test_a_number_field_wants_a_whole_number(text: str) -> None:
    assert parse_values(form_values(workers=text)).problems["workers"] == "Must be a whole number, e.g. 2."


def test_absurd_sizes_are_refused_before_anything_is_built_for_them() -> None:
    assert parse_values(form_values(workers="9" * 5000)).problems["workers"] == "At most 4,096."
    assert parse_values(form_values(gpus="1025")).problems["gpus"] == "At most 1,024."
    assert "20,000" in parse_values(command("x" * (LONGEST_TEXT + 1))).problems[COMMAND]


def test_a_command_is_run_by_a_shell_and_keeps_its_lines() -> None:
    result = parse_values(command("cd src\npython train.py", log_dir="/workspace/tb"))
    assert result.spec.command == ("sh", "-c", "cd src\npython train.py")
    assert result.spec.log_dir == "/workspace/tb"
    assert result.spec.trainer == ""
    assert parse_values(command("  \n ")).problems[COMMAND].startswith("Required: a command")


def test_environment_lines_are_read_as_they_stand() -> None:
    spec = parse_values(command("x", env='A=1,B=2\n\n B = two words \nC="a\\nb"\nD="open')).spec
    assert spec.env == {"A": "1,B=2", "B": " two words", "C": "a\nb", "D": '"open'}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("A", "Line 1: expected NAME=value."),
        ("A=1\n=2", "Line 2: expected NAME=value."),
        ("A=1\nA=2", "Line 2: duplicate name A."),
        ("1A=1", "'1A' is not a valid variable name: use letters, digits and '_'."),
    ],
)
def test_environment_lines_that_make_no_sense_are_said(lines: str, sentence: str) -> None:
    assert parse_values(form_values(env=lines)).problems["env"] == sentence


def test_volumes_that_make_no_sense_are_said_at_the_field_that_made_them() -> None:
    assert "mount_path" in parse_values(form_values(mount_path="data")).problems
    assert "more_volumes" in parse_values(form_values(more_volumes="scratch")).problems
    assert "more_volumes" in parse_values(form_values(more_volumes="scratch:data")).problems
    assert parse_values(form_values(more_volumes="scratch:/scratch")).problems == {}
    assert parse_values(form_values(claim="a b")).problems["claim"].startswith("Use lowercase letters")


def test_the_server_names_fields_and_the_form_finds_its_own() -> None:
    assert field_key("mounts", form_values()) == "claim"
    assert field_key("command", form_values()) == "run"
    assert field_key("command", command("x")) == COMMAND
    assert field_key("image", form_values()) == "image"


def test_a_name_is_suggested_that_no_job_of_the_namespace_has() -> None:
    state = FormState("default")
    assert state.values["name"] == "ddp-digits-1"
    state.suggest(cluster(jobs=(job("ddp-digits-1"), job("ddp-digits-3"), job("ddp-digits-2", "vision"))))
    assert state.values["name"] == "ddp-digits-2"
    state.set_value("run", COMMAND)
    state.suggest(cluster())
    assert state.values["name"] == "train-1"
    assert base_name(form_values()) == "ddp-digits"


def test_every_field_has_a_label_a_help_and_a_default_that_is_right() -> None:
    fields = list(JOB_FORM_FIELDS)
    for trainer in TRAINERS:
        fields += [each for part in trainer_fields(trainer) for each in part]
    assert len({field.key for field in fields}) == len(fields)
    for field in fields:
        assert field.label and field.help and not field.help.endswith(".")
        assert not field.choices or field.default in dict(field.choices) or field.key == "claim"


def test_a_job_of_somebody_else_can_be_cloned() -> None:
    spec = JobSpec(name="x", image="i", command=("python", "a b.py", "--x=1"), processes=3, gpus=1)
    values = values_from_spec(spec, CREATABLE[1])
    assert values["kind"] == CREATABLE[1].title
    assert values[COMMAND] == "python 'a b.py' --x=1"
    assert values["processes"] == "3"


def test_a_trainer_with_arguments_we_do_not_know_is_cloned_as_a_command() -> None:
    spec = replace(parse_values(form_values()).spec, command=(*TRAINERS[0].command(), "--newer", "1"))
    values = values_from_spec(spec, CREATABLE[0])
    assert values["run"] == COMMAND
    assert values[COMMAND].endswith("--newer 1")


# The preflight


def node(
    name: str, total: int, held: int = 0, status: str = "Ready", resource: str = "nvidia.com/gpu"
) -> NodeRow:
    return NodeRow(name, "", (), status, False, "", {resource: Share(total, held, 0)}, (), None)


def job(name: str, namespace: str = "default") -> Job:
    ref = JobRef(namespace, name, "PyTorchJob", "kubeflow.org/v1")
    return Job(ref, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")


def cluster(*nodes: NodeRow, **fields: Any) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes, is_synced=True, **fields)


def said(values: dict[str, str], snapshot: ClusterSnapshot) -> dict[str, str]:
    """Return the severity of each preflight line, by its text."""
    return {
        line.text: line.severity
        for line in preflight(parse_values(values), snapshot, ["workspace"], "default")
    }


def test_a_job_that_fits_is_said_to_fit_now() -> None:
    words = said(form_values(workers="2"), cluster(node("a", 4, 2), node("b", 4)))
    assert words["2 × 1 GPU: fits now on a; 6 of 8 GPUs free, largest free block 4"] == "ok"
    assert words["2 pods × 1 GPU, 1 process per pod = 2 ranks"] == "info"
    assert words["writes to /workspace/bert-1 on volume claim workspace"] == "info"


def test_the_fit_line_names_the_nodes_and_the_largest_block() -> None:
    nodes = [node(name, 4) for name in "abcdef"]
    words = said(form_values(workers="4", gpus="4"), cluster(*nodes, node("g", 8, 6)))
    text = "4 × 4 GPUs: fits now on a, b, c and 1 more; 26 of 32 GPUs free, largest free block 4"
    assert words[text] == "ok"


def test_the_fit_line_heeds_excluded_nodes_and_tolerations_and_says_what_it_cannot_check() -> None:
    words = said(form_values(excluded_nodes="a"), cluster(node("a", 4), node("b", 2)))
    assert words["1 × 1 GPU: fits now on b; 2 of 2 GPUs free, largest free block 2"] == "ok"
    words = said(form_values(excluded_nodes="a"), cluster(node("a", 4)))
    assert words["would never start: needs 1 × 1 GPU; the cluster has 0, at most 0 per node"] == "error"
    tainted = replace(node("a", 4), taints=(Taint("team", "nlp", "NoSchedule"),))
    words = said(form_values(tolerations="team=nlp:NoSchedule"), cluster(tainted))
    assert words["1 × 1 GPU: fits now on a; 4 of 4 GPUs free, largest free block 4"] == "ok"
    words = said(form_values(node_selector="gpu=a100"), cluster(node("a", 4)))
    text = "would fit now, where the node selector allows: 4 of 4 GPUs free, largest free block 4"
    assert words[f"1 × 1 GPU: {text}"] == "info"


def test_free_gpus_in_pieces_too_small_are_said_to_make_it_wait() -> None:
    words = said(form_values(workers="2", gpus="4"), cluster(node("a", 4, 2), node("b", 4)))
    assert words["would wait: needs 2 × 4 GPUs; 6 of 8 GPUs free, at most 4 on one node (b)"] == "warning"


def test_a_cordoned_node_counts_for_later_but_not_for_now() -> None:
    words = said(form_values(), cluster(node("a", 4, status="Ready, cordoned")))
    assert words["would wait: needs 1 × 1 GPU; 0 of 4 GPUs free"] == "warning"


def test_a_tainted_node_takes_the_job_only_where_the_taint_is_of_the_gpus() -> None:
    dedicated, of_gpus = Taint("team", "nlp", "NoSchedule"), Taint("nvidia.com/gpu", "", "NoSchedule")
    words = said(form_values(), cluster(replace(node("a", 4), taints=(of_gpus, dedicated))))
    assert words["would wait: needs 1 × 1 GPU; 0 of 4 GPUs free, 1 node tainted"] == "warning"
    words = said(form_values(), cluster(replace(node("a", 4), taints=(of_gpus,))))
    assert words["1 × 1 GPU: fits now on a; 4 of 4 GPUs free, largest free block 4"] == "ok"


def test_more_than_the_cluster_has_is_said_to_wait_for_ever() -> None:
    words = said(form_values(gpus="8"), cluster(node("a", 4), node("b", 4)))
    assert words["would never start: needs 1 × 8 GPUs; the cluster has 8, at most 4 per node"] == "error"


def test_a_resource_that_no_node_has_is_said_with_those_there_are() -> None:
    words = said(form_values(), cluster(node("a", 4, resource="amd.com/gpu")))
    assert words["would never start: no node has nvidia.com/gpu; available: amd.com/gpu"] == "error"


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (ClusterSnapshot(), "cannot tell yet whether it fits: still listing nodes"),
        (cluster(problems={"nodes": "no"}), "cannot tell whether it fits: you may not list nodes"),
        (cluster(node("a", 1), stale="gone"), "cluster unreachable: free GPUs may have changed"),
    ],
)
def test_what_is_not_known_is_not_claimed(snapshot: ClusterSnapshot, words: str) -> None:
    assert words in said(form_values(), snapshot)


def test_simulated_gpus_are_called_simulated() -> None:
    words = said(form_values(), cluster(replace(node("a", 8), is_simulated=True)))
    assert "1 × 1 GPU: fits now on a; 8 of 8 GPUs free (simulated), largest free block 8" in words


def test_processes_that_share_or_waste_gpus_are_pointed_out() -> None:
    assert said(form_values(processes="4"), cluster())["4 processes share 1 GPU in each pod"] == "warning"
    assert (
        said(form_values(gpus="4", processes="1"), cluster())["3 of 4 GPUs in each pod may be idle"]
        == "warning"
    )


def test_a_command_that_starts_no_processes_is_pointed_out() -> None:
    words = "the command must start the processes itself, e.g. with torchrun"
    assert said(command("python train.py", gpus="2"), cluster())[words] == "warning"
    assert words not in said(command("torchrun train.py", gpus="2"), cluster())


def test_a_kind_without_ranks_says_that_each_pod_trains_on_its_own() -> None:
    words = said(form_values(kind="Job", workers="2"), cluster())
    assert words["pods of a Job get no ranks: each trains on its own"] == "warning"


def test_files_that_would_be_lost_and_claims_that_are_missing_are_pointed_out() -> None:
    assert (
        said(form_values(claim=""), cluster())["no volume claim: its files are lost with its pods"]
        == "warning"
    )
    missing = "would wait: volume claim scratch not found in default"
    assert said(form_values(claim="scratch"), cluster())[missing] == "warning"
    assert PreflightLine("warning", missing) not in preflight(
        parse_values(form_values(claim="scratch")), cluster(), None
    )


def test_a_name_that_is_taken_is_seen_before_the_server_says_so() -> None:
    found = said(form_values(), cluster(jobs=(job("bert-1"),)))
    assert found["PyTorchJob bert-1 already exists in default"] == "error"


@pytest.mark.parametrize("text", ["9" * 30, "9999", "-1", "many", ""])
@pytest.mark.parametrize(("key", "label"), [("gpus", "GPUs"), ("workers", "Workers")])
def test_of_a_number_that_is_none_nothing_is_claimed(key: str, label: str, text: str) -> None:
    lines = list(said(form_values(**{key: text}), cluster(node("a", 8))))
    assert not any("GPU" in line and line != f"cannot tell the size: {label} is not valid" for line in lines)
    assert lines[0] == f"cannot tell the size: {label} is not valid"


@pytest.mark.parametrize("key", ["name", "claim", "mount_path", "namespace"])
def test_a_long_name_does_not_fill_the_summary(key: str) -> None:
    text = "/" * (key == "mount_path") + "x" * 300
    lines = said(form_values(**{key: text}), cluster(node("a", 8), jobs=(job("x" * 300),)))
    assert max(map(len, lines)) <= 150
    assert any("x…" in line or "…x" in line for line in lines) or key == "namespace"


# The draft


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=10), st.text(max_size=50)))
def test_a_draft_comes_back_as_it_was_kept(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    save_draft(folder, values)
    draft = read_draft(folder)
    assert draft is not None and draft.values == values


def test_a_draft_is_for_its_owner_only_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    save_draft(folder, {"name": "a"})
    save_draft(folder, {"name": "b"})
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    delete_draft(folder)
    delete_draft(folder)
    assert read_draft(folder) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"values": []}',
        b'{"values": {"name": 1}, "saved_s": 1}',
        b'{"values": {}, "saved_s": "soon"}',
        b"[" * 100_000,
        json.dumps({"values": {"name": "x" * 5_000_000}, "saved_s": 1}).encode(),
    ],
)
def test_a_file_that_is_no_draft_is_set_aside_and_said(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(DraftError, match=r"is not valid. It was renamed to new-job-draft.broken-1.json"):
        read_draft(tmp_path)
    assert (tmp_path / "new-job-draft.broken-1.json").read_bytes() == raw
    assert read_draft(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DraftError, match=r"Could not save the draft in .*file"):
        save_draft(tmp_path / "file", {})
    with pytest.raises(DraftError, match="Could not read"):
        read_draft(tmp_path / "file")
    save_last_image(tmp_path / "file", "x")
    assert last_image(tmp_path / "file") == ""


def test_each_context_has_its_own_draft_and_image(tmp_path: Path) -> None:
    sandbox = ClusterConfig(host="https://127.0.0.1:4711", context="gpuconsole-sandbox")
    lab = ClusterConfig(host="https://lab:6443", context="lab")
    folder = context_folder(tmp_path, sandbox)
    save_draft(folder, {"name": "a"})
    save_last_image(folder, "local")
    again = context_folder(tmp_path, replace(sandbox, host="https://127.0.0.1:4712"))
    assert again == folder
    for other in (lab, replace(lab, host="https://other:6443"), replace(lab, context="../../lab/\ud800")):
        elsewhere = context_folder(tmp_path, other)
        assert elsewhere.parent == folder.parent
        assert read_draft(elsewhere) is None
        assert last_image(elsewhere) == ""
        save_draft(elsewhere, {"name": other.context})
    assert len(list(folder.parent.iterdir())) == 4
    draft = read_draft(folder)
    assert draft is not None and draft.values == {"name": "a"}


def test_the_last_image_is_remembered(tmp_path: Path) -> None:
    assert last_image(tmp_path) == ""
    save_last_image(tmp_path, "registry/me:1")
    assert last_image(tmp_path) == "registry/me:1"
