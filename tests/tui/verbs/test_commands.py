"""The command lines shown for a job: the parser takes each of gpuconsole, and kubectl's are known ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from k8s.client.auth.kubeconfig import ConfigOverrides
from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.status import Status
from tests.support.objects import batch_job, joined, node, pod_of, pytorch_job
from tui.__main__ import _cut
from tui.commands.support.parser import make_parser, options_of
from tui.settings.options import ConsoleOptions, cluster_flags, command_line
from tui.verbs.commands import job_commands

HOSTILE = "a; rm -rf ~ $(id) 'b' \"c\" `d`"
KUBECTL: Mapping[str, tuple[str, ...]] = {
    "describe": (),
    "logs": ("-f", "--previous", "-c"),
    "events": ("--for",),
    "get": ("-o",),
    "edit": (),
    "exec": ("-it", "-c"),
    "delete": (),
    "patch": ("--type", "-p"),
}
"""The verbs of kubectl, with their flags."""
OPTIONS = (
    ConsoleOptions(),
    ConsoleOptions(is_sandbox=True, is_all_namespaces=True),
    ConsoleOptions(
        kubeconfig=f"/tmp/{HOSTILE}",
        context=HOSTILE,
        namespace="other",
        overrides=ConfigOverrides(server="https://h", token="secret", as_user=HOSTILE, as_groups=("a", "b")),
    ),
)


def job(name: str = "bert", *, has_pods: bool = True, is_batch: bool = False) -> Job:
    obj = batch_job(name) if is_batch else pytorch_job(name, workers=2)
    pods = [pod_of(obj, place, on="n1") for place in ("master-0", "worker-0")]
    (found,) = joined([node("n1", 32)], pods if has_pods and not is_batch else [], [obj])[1].values()
    return found


JOBS = (job(), job(has_pods=False), job(is_batch=True), replace(job(), ref=JobRef("v", HOSTILE, "X", "g/v1")))


def lines(options: ConsoleOptions, found: Job, instance: str = "", **given: bool) -> list[list[str]]:
    """Return the words of the lines as `commands` makes them."""
    where = replace(options, namespace=found.ref.namespace)
    kubectl = ["kubectl", *cluster_flags(where)]
    return [
        shlex.split(command_line(where, *words)) if program == "gpuconsole" else [*kubectl, *words]
        for _, program, words in job_commands(found, instance, **given)
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "sandbox", "all flags"])
@pytest.mark.parametrize("found", JOBS, ids=["pods", "no pods", "batch", "hostile"])
def test_each_shown_gpuconsole_command_line_is_accepted_by_the_parser(
    options: ConsoleOptions, found: Job
) -> None:
    ours = [words for words in lines(options, found) if words[0] == "gpuconsole"]
    assert len(ours) >= 8
    for words in ours:
        flags = make_parser().parse_args(_cut(words[1:])[0])
        named = f"{found.ref.kind}/{found.ref.name}"
        assert any(value in (named, [named]) for value in vars(flags).values())
        again = options_of(flags)
        assert (again.kubeconfig, again.context) == (options.kubeconfig, options.context)
        assert (again.namespace, again.is_sandbox) == (found.ref.namespace, options.is_sandbox)
        assert (again.overrides.as_user, again.overrides.as_groups) == (
            options.overrides.as_user,
            options.overrides.as_groups,
        )
        assert again.overrides.token == "", "a token would be in the shell's history"


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "sandbox", "all flags"])
@pytest.mark.parametrize("found", JOBS, ids=["pods", "no pods", "batch", "hostile"])
def test_each_shown_kubectl_command_line_uses_known_words(options: ConsoleOptions, found: Job) -> None:
    for program, *words in lines(options, found):
        if program != "kubectl":
            continue
        given: dict[str, str] = {}
        while words[0].startswith("-"):
            given[words[0]] = words[1]
            words = words[2:]
        assert given.get("--kubeconfig", "") == options.kubeconfig
        assert given["-n"] == found.ref.namespace and given.get("--context", "") == options.context
        verb, *rest = words
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in own if word.startswith("-")} <= set(KUBECTL[verb]), verb


def test_pod_commands_are_shown_only_for_jobs_with_pods() -> None:
    with_pods, without = (
        {words[3] for words in lines(OPTIONS[0], each) if words[0] == "kubectl"} for each in JOBS[:2]
    )
    assert with_pods - without == {"logs", "exec"}


def test_commands_without_use_for_a_finished_job_are_left_out() -> None:
    over = replace(job(), status=Status.FAILED)
    running, ended = ({(each[0], each[2][0]) for each in job_commands(found)} for found in (job(), over))
    left = {("shell", "shell"), ("shell", "exec"), ("port_forward", "forward"), ("suspend", "suspend")}
    assert ended < running and running - ended >= left and ("logs", "logs") in ended
    assert not any("-f" in words for _, _, words in job_commands(over))


def test_the_selected_instance_and_the_api_group_are_named_where_needed() -> None:
    shown = [" ".join(words) for words in lines(OPTIONS[0], JOBS[0], instance="worker-0", is_ambiguous=True)]
    assert "gpuconsole -n default logs -f pytorchjobs.kubeflow.org/bert -i worker-0" in shown
    assert any(line.endswith("exec -it bert-worker-0 -c pytorch -- sh") for line in shown)
