"""Makes a `JobSpec` of the new-job form's answers, and answers of a `JobSpec`.

Answers are plain texts by the key of their question. Whatever they hold becomes a
spec, and a sentence for each field that is wrong.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from k8s.kinds import CREATABLE, CreatableKind
from k8s.models.job_spec import LONGEST_NAME, JobSpec, Mount
from trainer.catalogue import TRAINERS, Argument, Trainer
from tui.jobs.new_job.fields import COMMAND, DIRECTORIES, default_text, default_texts

Texts = Mapping[str, str]
"""What stands in the fields, by the key of the question; a key that is missing is at its default."""

LONGEST_TEXT = 20_000
"""Characters of one field that are taken seriously."""

_MOST = {"workers": 4096, "gpus": 1024, "processes": 1024, "retries": 1000}
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
_NUMBERED = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormResult:
    """What the answers amount to."""

    kind: CreatableKind
    spec: JobSpec
    """Where an answer makes no sense, the default stands in."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Key of a question to what is wrong with its answer."""


def suggest_name(like: str, taken: Collection[str]) -> str:
    """Return a name that no job has: `like` with the first number that is free."""
    base = _NUMBERED.sub("", like)
    number = 1
    while (name := f"{base[: LONGEST_NAME - len(str(number)) - 1]}-{number}") in taken:
        number += 1
    return name


def name_base(texts: Texts) -> str:
    """Return what a job with these answers might be called, without a number: `ddp-digits`."""
    run = texts.get("run", "")
    if run == COMMAND or run not in {trainer.name for trainer in TRAINERS}:
        return "train"
    dataset = texts.get(f"{run}.dataset", "")
    return f"{run}-{dataset}" if dataset else run


def read(texts: Texts, user: str = "") -> FormResult:
    """Make a spec of the answers, and say what is wrong with them. Never fails.

    Args:
        texts: The answers.
        user: Who asks.
    """
    problems: dict[str, str] = {}
    answers = default_texts()
    for key, text in texts.items():
        if len(text) > LONGEST_TEXT and key not in ("name", "image"):
            problems[key] = f"At most {LONGEST_TEXT:,} characters, this has {len(text):,}."
        else:
            answers[key] = text if key == COMMAND else text.strip()
    numbers = {key: _number(key, answers, problems) for key in ("workers", "gpus", "retries")}
    processes = _number("processes", answers, problems) if answers["processes"] else max(1, numbers["gpus"])
    kind = next((each for each in CREATABLE if each.title == answers["kind"]), None)
    if kind is None:
        problems["kind"] = f"One of {', '.join(each.title for each in CREATABLE)}."
    mounts = _mounts(answers, problems)
    command, log_dir = _command(answers, problems)
    spec = JobSpec(
        name=answers["name"],
        namespace=answers["namespace"],
        image=answers["image"],
        workers=numbers["workers"],
        gpus=numbers["gpus"],
        gpu_resource=answers["gpu_resource"],
        processes=processes,
        command=command,
        working_dir=answers["working_dir"] or (answers["mount_path"] if answers["claim"] else ""),
        env=_pairs("env", answers, problems),
        mounts=mounts,
        cpu=answers["cpu"],
        memory=answers["memory"],
        shared_memory=answers["shared_memory"],
        priority_class=answers["priority_class"],
        retries=numbers["retries"],
        clean_pods=answers["clean_pods"],
        trainer=answers["run"] if answers["run"] != COMMAND else "",
        log_dir=log_dir,
        user=user,
        labels=_pairs("labels", answers, problems),
    )
    problems |= _name_problems(answers)
    for key, sentence in spec.problems().items():
        key = _key_of(key, answers, spec)
        if key == COMMAND and spec.trainer:
            continue
        problems.setdefault(key, sentence)
    return FormResult(kind=kind or CREATABLE[0], spec=spec, problems=problems)


def key_of_field(name: str, texts: Texts) -> str:
    """Return the key of the question from which a field of `JobSpec` is made; the server names fields."""
    if name == COMMAND and texts.get("run", "") != COMMAND:
        return "run"
    return {"mounts": "claim", "working_dir": "working_dir"}.get(name, name)


def _key_of(name: str, answers: Texts, spec: JobSpec) -> str:
    if name == "working_dir":
        return "working_dir" if answers["working_dir"] else "mount_path"
    if name == "mounts":
        first = JobSpec(mounts=spec.mounts[:1]).problems() if answers["claim"] else {}
        return "mount_path" if "mounts" in first else "more_volumes"
    return name


def _number(key: str, answers: Texts, problems: dict[str, str]) -> int:
    text = answers[key]
    if not (text.isascii() and text.isdecimal()):
        problems[key] = "A whole number, as in 2."
        return 1 if key != "retries" else 0
    number = int(text) if len(text.lstrip("0")) < 10 else 10**9
    if number > _MOST[key]:
        problems[key] = f"At most {_MOST[key]:,}."
        return 1
    return number


def _mounts(answers: Texts, problems: dict[str, str]) -> tuple[Mount, ...]:
    mounts = [Mount(answers["claim"], answers["mount_path"])] if answers["claim"] else []
    for number, line in _lines(answers["more_volumes"]):
        claim, colon, path = line.partition(":")
        if not colon or not _DNS_NAME.fullmatch(claim):
            problems["more_volumes"] = f"Line {number}: write claim:/path."
            continue
        mounts.append(Mount(claim, path))
    return tuple(mounts)


def _pairs(key: str, answers: Texts, problems: dict[str, str]) -> dict[str, str]:
    """Read NAME=value lines; a value that is a JSON string in quotes is what it says."""
    found: dict[str, str] = {}
    for number, line in _lines(answers[key]):
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name:
            problems[key] = f"Line {number}: write NAME=value."
        elif name in found:
            problems[key] = f"Line {number}: {name} is there twice."
        else:
            found[name] = _unquoted(value)
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    return [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            return value
    return value


def _quoted(value: str) -> str:
    is_plain = value == value.strip() and "\n" not in value and not value.startswith('"')
    return value if is_plain else json.dumps(value)


def _name_problems(answers: Texts) -> dict[str, str]:
    found = {}
    if not answers["namespace"]:
        found["namespace"] = "Say in which namespace."
    for key in ("namespace", "claim", "priority_class"):
        if answers[key] and not _DNS_NAME.fullmatch(answers[key]):
            found[key] = "Use a-z, 0-9, - and . only, a letter or digit at both ends."
    if not _RESOURCE.fullmatch(answers["gpu_resource"]):
        found["gpu_resource"] = "As in nvidia.com/gpu."
    if answers["clean_pods"] not in ("None", "Running", "All"):
        found["clean_pods"] = "One of None, Running, All."
    return found


def _command(answers: Texts, problems: dict[str, str]) -> tuple[tuple[str, ...], str]:
    """Return the words to run, and the folder in which event files will be."""
    if answers["run"] == COMMAND:
        line = answers[COMMAND].strip()
        return (("sh", "-c", line) if line else ()), answers["log_dir"]
    trainer = next((each for each in TRAINERS if each.name == answers["run"]), None)
    if trainer is None:
        problems["run"] = f"One of {', '.join(each.name for each in TRAINERS)}, {COMMAND}."
        return (), ""
    values = {}
    for argument in trainer.arguments:
        key = f"{trainer.name}.{argument.name}"
        text = _folder(argument, answers) if argument.name in DIRECTORIES else answers[key]
        try:
            trainer.command({argument.name: text})
        except ValueError as error:
            problems[key] = f"{str(error).removeprefix(f'{argument.flag}: ')}."
            continue
        if text != default_text(argument):
            values[argument.name] = text
    dataset, folder = f"{trainer.name}.dataset", f"{trainer.name}.data"
    if answers.get(dataset) == "mnist" and answers.get(folder) == "":
        problems[folder] = "mnist is read from files: name their folder, as in /workspace/mnist."
    log_dirs = [_folder(each, answers) for each in trainer.arguments if each.name == "log-dir"]
    return tuple(trainer.command(values)), log_dirs[0] if log_dirs else ""


def _folder(argument: Argument, answers: Texts) -> str:
    """Return where a trainer writes: on the claim a folder of the job's own, else its default."""
    if not answers["claim"]:
        return str(argument.default)
    return f"{answers['mount_path'].rstrip('/')}/{answers['name']}/{DIRECTORIES[argument.name]}"


def texts_of(spec: JobSpec, kind: CreatableKind) -> dict[str, str]:
    """Return the answers that make `spec`; what it writes goes to folders named after the job.

    Args:
        spec: The wish of a job that exists, or existed.
        kind: Its kind.
    """
    texts = default_texts()
    first, rest = (spec.mounts[0], spec.mounts[1:]) if spec.mounts else (Mount("", "/workspace"), ())
    texts |= {
        "name": spec.name,
        "kind": kind.title,
        "namespace": spec.namespace,
        "image": spec.image,
        "workers": str(spec.workers),
        "gpus": str(spec.gpus),
        "processes": "" if spec.processes == max(1, spec.gpus) else str(spec.processes),
        "claim": first.claim,
        "mount_path": first.path,
        "more_volumes": "\n".join(f"{mount.claim}:{mount.path}" for mount in rest),
        "env": "\n".join(f"{name}={_quoted(value)}" for name, value in spec.env.items()),
        "labels": "\n".join(f"{name}={_quoted(value)}" for name, value in spec.labels.items()),
        "cpu": spec.cpu,
        "memory": spec.memory,
        "shared_memory": spec.shared_memory,
        "retries": str(spec.retries),
        "clean_pods": spec.clean_pods,
        "priority_class": spec.priority_class,
        "gpu_resource": spec.gpu_resource,
        "working_dir": "" if spec.working_dir == (first.path if first.claim else "") else spec.working_dir,
    }
    for trainer in TRAINERS:
        values = _values_in(trainer, spec.command) if trainer.name == spec.trainer else None
        if values is not None:
            texts["run"] = trainer.name
            return texts | {f"{trainer.name}.{name}": text for name, text in values.items()}
    is_shell_line = len(spec.command) == 3 and spec.command[:2] == ("sh", "-c")
    texts["run"] = COMMAND
    texts[COMMAND] = spec.command[2] if is_shell_line else shlex.join(spec.command)
    texts["log_dir"] = spec.log_dir
    return texts


def _values_in(trainer: Trainer, command: Sequence[str]) -> dict[str, str] | None:
    """Read a trainer's arguments back from a command; None when it says more than they can."""
    start = trainer.command()
    if list(command[: len(start)]) != start:
        return None
    values = {}
    words = list(command[len(start) :])
    known = {argument.flag: argument for argument in trainer.arguments}
    while words:
        flag, equals, text = words.pop(0).partition("=")
        if flag not in known:
            return None
        argument = known[flag]
        if isinstance(argument.default, bool):
            text = "true"
        elif not equals:
            if not words:
                return None
            text = words.pop(0)
        values[argument.name] = text
    return values
