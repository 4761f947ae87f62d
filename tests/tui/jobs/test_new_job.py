"""The new-job form without a screen: answers to a spec and back, the plan in words, the draft."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.jobs.create import to_yaml
from k8s.kinds import CREATABLE, JobRef
from k8s.models import Taint
from k8s.models.job_spec import JobSpec, Mount
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, Share
from k8s.status import Status
from trainer.catalogue import TRAINERS
from tui.jobs.new_job.draft import (
    FILE,
    DraftProblem,
    drop_draft,
    keep_draft,
    read_draft,
    remember_image,
    remembered_image,
)
from tui.jobs.new_job.fields import COMMAND, RARE, SECTIONS, default_texts, questions_of
from tui.jobs.new_job.form_spec import LONGEST_TEXT, key_of_field, name_base, read, suggest_name, texts_of
from tui.jobs.new_job.preflight import PlanLine, plan

KEYS = sorted(default_texts())
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


def answers(**texts: str) -> dict[str, str]:
    return {**default_texts(), "name": "bert-1", "claim": "workspace", **texts}


def command(line: str, **texts: str) -> dict[str, str]:
    return answers(run=COMMAND, command=line, **texts)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), TEXT))
def test_any_answers_become_a_spec_or_a_sentence_for_each_wrong_field(texts: dict[str, str]) -> None:
    wish = read(texts, "li")
    assert all(sentence for sentence in wish.problems.values())
    assert set(wish.problems) <= {*KEYS, *texts, "command", "run"}
    assert plan(wish, ClusterSnapshot())
    if "\ud800" not in "".join(texts.values()):
        assert to_yaml(wish.kind.manifest(wish.spec))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), TEXT))
def test_a_job_without_problems_is_the_same_job_when_it_is_cloned(texts: dict[str, str]) -> None:
    wish = read(answers(**texts), "li")
    if not wish.problems:
        assert read(texts_of(wish.spec, wish.kind), "li").spec == wish.spec


@settings(max_examples=50, deadline=None)
@given(
    env=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(max_size=30)),
    words=st.lists(st.text(alphabet="ab '\"$\\-=", min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_any_environment_survives_a_clone(env: dict[str, str], words: list[str]) -> None:
    spec = JobSpec(name="a", image="i", command=("sh", "-c", "echo " + "".join(words).strip()), env=env)
    again = read(texts_of(spec, CREATABLE[0])).spec
    assert again.env == env


def test_defaults_with_a_name_are_ready_to_be_created() -> None:
    wish = read(answers())
    assert wish.problems == {}
    assert wish.spec.trainer == TRAINERS[0].name
    assert wish.spec.mounts == (Mount("workspace", "/workspace"),)
    assert wish.spec.working_dir == "/workspace"
    assert wish.spec.log_dir == "/workspace/bert-1/logs"
    words = wish.spec.command
    assert words[words.index("--log-dir") + 1] == "/workspace/bert-1/logs"
    assert words[words.index("--checkpoint-dir") + 1] == "/workspace/bert-1/checkpoints"


def test_without_a_claim_a_trainer_writes_to_its_scratch_folder() -> None:
    spec = read(answers(claim="")).spec
    assert spec.mounts == ()
    assert spec.log_dir == "logs"
    assert "--log-dir" not in spec.command
    assert spec.working_dir == ""


def test_processes_follow_the_gpus_until_they_are_typed() -> None:
    assert read(answers(gpus="4")).spec.processes == 4
    assert read(answers(gpus="0")).spec.processes == 1
    assert read(answers(gpus="4", processes="2")).spec.processes == 2


def test_arguments_of_a_trainer_are_checked_by_the_catalogue() -> None:
    wish = read(answers(**{"ddp.epochs": "many", "ddp.lr": "-1", "ddp.dataset": "cats"}))
    assert wish.problems["ddp.epochs"].startswith("'many' is not")
    assert wish.problems["ddp.lr"].startswith("-1 is ")
    assert wish.problems["ddp.dataset"].startswith("'cats' is ")
    assert "--epochs" not in wish.spec.command


def test_mnist_needs_a_folder() -> None:
    wish = read(answers(**{"ddp.dataset": "mnist", "ddp.data": ""}))
    assert "folder" in wish.problems["ddp.data"]


@pytest.mark.parametrize("text", ["", "two", "1.5", "-1", "٣", "1e3", "0x2", "1_000"])
def test_a_number_field_wants_a_whole_number(text: str) -> None:
    assert read(answers(workers=text)).problems["workers"] == "A whole number, as in 2."


def test_absurd_sizes_are_refused_before_anything_is_built_for_them() -> None:
    assert read(answers(workers="9" * 5000)).problems["workers"] == "At most 4,096."
    assert read(answers(gpus="1025")).problems["gpus"] == "At most 1,024."
    assert "20,000" in read(command("x" * (LONGEST_TEXT + 1))).problems[COMMAND]


def test_a_command_is_run_by_a_shell_and_keeps_its_lines() -> None:
    wish = read(command("cd src\npython train.py", log_dir="/workspace/tb"))
    assert wish.spec.command == ("sh", "-c", "cd src\npython train.py")
    assert wish.spec.log_dir == "/workspace/tb"
    assert wish.spec.trainer == ""
    assert read(command("  \n ")).problems[COMMAND].startswith("Say what to run")


def test_environment_lines_are_read_as_they_stand() -> None:
    spec = read(command("x", env='A=1,B=2\n\n B = two words \nC="a\\nb"\nD="open')).spec
    assert spec.env == {"A": "1,B=2", "B": " two words", "C": "a\nb", "D": '"open'}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("A", "Line 1: write NAME=value."),
        ("A=1\n=2", "Line 2: write NAME=value."),
        ("A=1\nA=2", "Line 2: A is there twice."),
        ("1A=1", "'1A' cannot be the name of a variable: use letters, digits and _."),
    ],
)
def test_environment_lines_that_make_no_sense_are_said(lines: str, sentence: str) -> None:
    assert read(answers(env=lines)).problems["env"] == sentence


def test_volumes_that_make_no_sense_are_said_at_the_field_that_made_them() -> None:
    assert "mount_path" in read(answers(mount_path="data")).problems
    assert "more_volumes" in read(answers(more_volumes="scratch")).problems
    assert "more_volumes" in read(answers(more_volumes="scratch:data")).problems
    assert read(answers(more_volumes="scratch:/scratch")).problems == {}
    assert read(answers(claim="a b")).problems["claim"].startswith("Use a-z")


def test_the_server_names_fields_and_the_form_finds_its_own() -> None:
    assert key_of_field("mounts", answers()) == "claim"
    assert key_of_field("command", answers()) == "run"
    assert key_of_field("command", command("x")) == COMMAND
    assert key_of_field("image", answers()) == "image"


def test_a_name_nobody_has_is_suggested() -> None:
    assert suggest_name("ddp-digits", {"ddp-digits-1", "ddp-digits-3"}) == "ddp-digits-2"
    assert suggest_name("bert-7", {"bert-7"}) == "bert-1"
    assert len(suggest_name("x" * 80, set())) == 49
    assert name_base(answers()) == "ddp-digits"
    assert name_base(command("x")) == "train"


def test_every_question_has_a_label_a_help_and_a_default_that_is_right() -> None:
    questions = [each for _, part in SECTIONS for each in part] + list(RARE)
    for trainer in TRAINERS:
        questions += [each for part in questions_of(trainer) for each in part]
    assert len({question.key for question in questions}) == len(questions)
    for question in questions:
        assert question.label and question.help and not question.help.endswith(".")
        assert not question.choices or question.default in dict(question.choices) or question.key == "claim"


def test_a_job_of_somebody_else_can_be_cloned() -> None:
    spec = JobSpec(name="x", image="i", command=("python", "a b.py", "--x=1"), processes=3, gpus=1)
    texts = texts_of(spec, CREATABLE[1])
    assert texts["kind"] == CREATABLE[1].title
    assert texts[COMMAND] == "python 'a b.py' --x=1"
    assert texts["processes"] == "3"


def test_a_trainer_with_arguments_we_do_not_know_is_cloned_as_a_command() -> None:
    spec = replace(read(answers()).spec, command=(*TRAINERS[0].command(), "--newer", "1"))
    texts = texts_of(spec, CREATABLE[0])
    assert texts["run"] == COMMAND
    assert texts[COMMAND].endswith("--newer 1")


# The plan


def node(
    name: str, total: int, held: int = 0, status: str = "Ready", resource: str = "nvidia.com/gpu"
) -> NodeRow:
    return NodeRow(name, "", (), status, False, "", {resource: Share(total, held, 0)}, (), None)


def cluster(*nodes: NodeRow, **fields: Any) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes, is_synced=True, **fields)


def said(texts: dict[str, str], snapshot: ClusterSnapshot) -> dict[str, str]:
    """Return the plan's lines by their words, to their marks."""
    return {line.text: line.mark for line in plan(read(texts), snapshot, ["workspace"], "default")}


def test_a_job_that_fits_is_said_to_fit_now() -> None:
    words = said(answers(workers="2"), cluster(node("a", 4, 2), node("b", 4)))
    assert words["fits now: 6 of 8 GPUs are free"] == "good"
    assert words["2 pods × 1 GPU, 1 process each = 2 ranks"] == "note"
    assert words["writes to claim workspace, in /workspace/bert-1"] == "note"


def test_free_gpus_in_pieces_too_small_are_said_to_make_it_wait() -> None:
    words = said(answers(workers="2", gpus="4"), cluster(node("a", 4, 2), node("b", 4)))
    assert words["would wait: it wants 2 × 4; 6 of 8 GPUs are free, at most 4 on one node (b)"] == "warning"


def test_a_cordoned_node_counts_for_later_but_not_for_now() -> None:
    words = said(answers(), cluster(node("a", 4, status="Ready, cordoned")))
    assert words["would wait: it wants 1 × 1; 0 of 4 GPUs are free"] == "warning"


def test_a_tainted_node_takes_the_job_only_where_the_taint_is_of_the_gpus() -> None:
    dedicated, of_gpus = Taint("team", "nlp", "NoSchedule"), Taint("nvidia.com/gpu", "", "NoSchedule")
    words = said(answers(), cluster(replace(node("a", 4), taints=(of_gpus, dedicated))))
    assert words["would wait: it wants 1 × 1; 0 of 4 GPUs are free, 1 node tainted"] == "warning"
    words = said(answers(), cluster(replace(node("a", 4), taints=(of_gpus,))))
    assert words["fits now: 4 of 4 GPUs are free"] == "good"


def test_more_than_the_cluster_has_is_said_to_wait_for_ever() -> None:
    words = said(answers(gpus="8"), cluster(node("a", 4), node("b", 4)))
    assert words["could never start: it wants 1 × 8; there are 8, at most 4 on one node"] == "bad"


def test_a_resource_that_no_node_has_is_said_with_those_there_are() -> None:
    words = said(answers(), cluster(node("a", 4, resource="amd.com/gpu")))
    assert words["could never start: no node has nvidia.com/gpu; there is amd.com/gpu"] == "bad"


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (ClusterSnapshot(), "the nodes are not read yet: nobody knows whether it fits"),
        (cluster(problems={"nodes": "no"}), "this user may not list nodes: nobody knows whether it fits"),
        (cluster(node("a", 1), stale="gone"), "the cluster is away, what is free may have changed"),
    ],
)
def test_what_is_not_known_is_not_claimed(snapshot: ClusterSnapshot, words: str) -> None:
    assert words in said(answers(), snapshot)


def test_simulated_gpus_are_called_simulated() -> None:
    words = said(answers(), cluster(replace(node("a", 8), is_simulated=True)))
    assert "fits now: 8 of 8 GPUs are free (simulated)" in words


def test_processes_that_share_or_waste_gpus_are_pointed_out() -> None:
    assert said(answers(processes="4"), cluster())["4 processes share 1 GPU in each pod"] == "warning"
    assert (
        said(answers(gpus="4", processes="1"), cluster())["3 of 4 GPUs in each pod may stay idle"]
        == "warning"
    )


def test_a_command_that_starts_no_processes_is_pointed_out() -> None:
    words = "more than one process in a pod has to be started by the command"
    assert said(command("python train.py", gpus="2"), cluster())[words] == "warning"
    assert words not in said(command("torchrun train.py", gpus="2"), cluster())


def test_a_kind_without_ranks_says_that_each_pod_trains_on_its_own() -> None:
    words = said(answers(kind="Job", workers="2"), cluster())
    assert words["a Job gives its pods no ranks, each trains on its own"] == "warning"


def test_files_that_would_be_lost_and_claims_that_are_missing_are_pointed_out() -> None:
    assert (
        said(answers(claim=""), cluster())["no volume claim: what it writes is lost with its pods"]
        == "warning"
    )
    missing = "would wait: there is no volume claim scratch in default"
    assert said(answers(claim="scratch"), cluster())[missing] == "warning"
    assert PlanLine("warning", missing) not in plan(read(answers(claim="scratch")), cluster(), None)


def test_a_name_that_is_taken_is_seen_before_the_server_says_so() -> None:
    ref = JobRef("default", "bert-1", "PyTorchJob", "kubeflow.org/v1")
    job = Job(ref, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
    assert said(answers(), cluster(jobs=(job,)))["default has a PyTorchJob bert-1 already"] == "bad"


# The draft


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=10), st.text(max_size=50)))
def test_a_draft_comes_back_as_it_was_kept(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    keep_draft(folder, texts)
    draft = read_draft(folder)
    assert draft is not None and draft.texts == texts


def test_a_draft_is_for_its_owner_only_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    keep_draft(folder, {"name": "a"})
    keep_draft(folder, {"name": "b"})
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    drop_draft(folder)
    drop_draft(folder)
    assert read_draft(folder) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"texts": []}',
        b'{"texts": {"name": 1}, "saved_s": 1}',
        b'{"texts": {}, "saved_s": "soon"}',
        b"[" * 100_000,
        json.dumps({"texts": {"name": "x" * 5_000_000}, "saved_s": 1}).encode(),
    ],
)
def test_a_file_that_is_no_draft_is_set_aside_and_said(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(
        DraftProblem, match=r"makes no sense. It was set aside as new-job-draft.broken-1.json"
    ):
        read_draft(tmp_path)
    assert (tmp_path / "new-job-draft.broken-1.json").read_bytes() == raw
    assert read_draft(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DraftProblem, match=r"could not be kept in .*file"):
        keep_draft(tmp_path / "file", {})
    with pytest.raises(DraftProblem, match="could not be read"):
        read_draft(tmp_path / "file")
    remember_image(tmp_path / "file", "x")
    assert remembered_image(tmp_path / "file") == ""


def test_the_last_image_is_remembered(tmp_path: Path) -> None:
    assert remembered_image(tmp_path) == ""
    remember_image(tmp_path, "registry/me:1")
    assert remembered_image(tmp_path) == "registry/me:1"
