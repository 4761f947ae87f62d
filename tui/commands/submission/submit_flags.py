"""Flags of `submit KIND`, generated from the fields of a job, and the `JobSpec` they describe."""

from __future__ import annotations

import argparse
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from k8s.job_spec import JOB_FIELDS, JobField, JobSpec, Mount, problems_of
from k8s.job_spec.field_types import Choice, Pairs, Parts, Switch, Text
from k8s.jobs.run_folders import CHECKPOINTS, LOGS, run_name
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.pods.command import shell_argv
from k8s.models.accelerators import is_accelerator
from trainer.catalogue import TRAINERS, Trainer, find
from tui.commands.support.output import WrongUsage
from tui.commands.support.parser import SwitchAction
from tui.jobs.new_job.trainer_command import trainer_command
from tui.options import local_user

# Output volume of packaged trainers, unless overridden.
WORKSPACE = Mount("workspace", "/workspace")
# Working directory of jobs with fetched code, unless overridden. Source: Arena.
SYNCED_WORKING_DIR = "/root"

# `-n` is global; the others follow from the arguments and the local user.
_NO_FLAG = ("namespace", "command", "trainer", "user")
_LACKS_NOTHING: Mapping[str, str] = {}
_ONE_PER_GPU = ("auto", "gpu")
# Arena's flags that register the model with MLflow.
_MODEL_FLAGS = ("--model-name", "--model-source")
DEST = "spec_"


def add_spec_arguments(parser: argparse.ArgumentParser, lacks: Mapping[str, str] = _LACKS_NOTHING) -> None:
    """Add the flags of a job.

    Args:
        parser: Parser of one job kind.
        lacks: Fields that this kind does not support; their flags are parsed but not in its help.
    """
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs="*",
        help="command to run: one quoted line for the shell, or words after --",
    )
    groups: dict[str, Any] = {}
    for field in JOB_FIELDS.values():
        if field.section not in groups:
            groups[field.section] = parser.add_argument_group(field.section)
        if field.name not in _NO_FLAG:
            _add_flag(groups[field.section], field, is_hidden=field.name in lacks)
    groups["code"].add_argument(
        "--git-user",
        default="",
        metavar="USER",
        help=argparse.SUPPRESS
        if "sync_mode" in lacks
        else "user of a private repository; asks for the password, which goes into a Secret of the job",
    )
    add = groups["launch"].add_argument
    add("--shell", default="sh", help="shell that runs a quoted COMMAND (default sh)")
    names = ", ".join(trainer.name for trainer in TRAINERS)
    add(
        "--trainer",
        default="",
        metavar="NAME",
        help=f"run a packaged trainer ({names}) with the arguments after --",
    )
    add(
        "--continue",
        dest="continue_from",
        default="",
        metavar="JOB|FOLDER",
        help="with --trainer: go on from the checkpoint of an earlier job, or of its folder in the pods",
    )
    for flag in _MODEL_FLAGS:
        parser.add_argument(flag, help=argparse.SUPPRESS)


def _add_flag(group: Any, field: JobField, *, is_hidden: bool) -> None:
    # Values stay text until all flags are known.
    longs = [flag for flag in field.flags if flag.startswith("--")]
    shorts = [flag for flag in field.flags if not flag.startswith("--")]
    action = SwitchAction if isinstance(field.type, Switch) else "append"
    more = {"dest": f"{DEST}{field.name}", "action": action, "metavar": metavar_of(field)}
    shown = argparse.SUPPRESS if is_hidden else help_of(field).replace("%", "%%")
    group.add_argument(*shorts, longs[0], help=shown, **more)
    if longs[1:]:
        group.add_argument(*longs[1:], help=argparse.SUPPRESS, **more)


def model_flags(flags: argparse.Namespace) -> list[str]:
    """Return the given flags that would register a model."""
    return [flag for flag in _MODEL_FLAGS if getattr(flags, flag[2:].replace("-", "_"), None) is not None]


def flag_of(name: str) -> str:
    """Return the flag or argument that sets a field."""
    return {"command": "COMMAND", "namespace": "-n"}.get(name) or JOB_FIELDS[name].flags[0]


def metavar_of(field: JobField) -> str:
    """Return the placeholder of a field's value in usage; empty for a switch."""
    if field.name == "processes":
        return "N|auto|cpu|gpu"
    return "|".join(field.type.words) if isinstance(field.type, Choice) else field.type.metavar


def help_of(field: JobField) -> str:
    """Return a field's help beside its flag, with the default."""
    words = field.help.replace("per line", "per flag").replace("; empty: ", "; default: ")
    first = words.split()[0]
    if first.isalpha() and first == first.capitalize():
        words = first.lower() + words.removeprefix(first)
    is_said = field.default_text and not isinstance(field.type, Switch) and field.name != "processes"
    return f"{words} (default {field.default_text})" if is_said else words


def spec_of(
    flags: argparse.Namespace,
    namespace: str,
    *,
    kind: CreatableKind = CREATABLE[0],
    unsupported: Callable[[JobSpec], Mapping[str, str]] = lambda _: {},
    image: str = "",
    stamp: str = "",
    continued: str = "",
) -> JobSpec:
    """Return the job that the flags describe; words after `--` are in `flags.rest`.

    Args:
        flags: The parsed flags.
        namespace: Namespace of the job.
        kind: Kind of the job, for the command of a trainer.
        unsupported: Returns the fields of a spec that the kind does not support, with reasons.
        image: Default image.
        stamp: Suffix that keeps a trainer's folder apart from those of earlier jobs of its name.
        continued: Folder of the run that `--continue` names.

    Raises:
        WrongUsage: A flag is invalid.
    """
    fields = {"image": image, **_given(flags)}
    given = frozenset(fields)
    if "roles" in fields:
        fields.setdefault("workers", kind.workers_of(fields["roles"]))
    for complete in (_gpus, _processes, _working_dir):
        complete(fields)
    fields |= _command(flags, kind, fields, stamp, continued)
    spec = JobSpec(namespace=namespace, user=local_user(), **fields)
    refused = {name: words for name, words in unsupported(spec).items() if name in given}
    complain(refused | problems_of(spec))
    return spec


def complain(problems: Mapping[str, str]) -> None:
    """Reject the flags if there are problems, keyed by field."""
    if problems:
        raise WrongUsage("\n".join(f"{flag_of(name)}: {words}" for name, words in problems.items()))


def _given(flags: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that flags set; `processes` is still text.

    Raises:
        WrongUsage: A flag has an invalid value.
    """
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, field in JOB_FIELDS.items():
        texts: list[str] | None = getattr(flags, f"{DEST}{name}", None)
        if texts is None:
            continue
        try:
            found[name] = texts[-1] if name == "processes" else _value(field, texts)
        except ValueError as error:
            problems[name] = str(error)
    complain(problems)
    return found


def _value(field: JobField, texts: Sequence[str]) -> Any:
    """Return a field's value from the texts of its flag; unless it repeats, the last text counts.

    Raises:
        ValueError: The texts are not a valid value.
    """
    if isinstance(field.type, Pairs):
        return dict(_each(field, texts, _pair))
    if isinstance(field.type, Parts):
        return tuple(_each(field, texts, field.type.from_text))
    text = texts[-1]
    if isinstance(field.type, Text):
        return text  # as it is, so that a control character at its end is seen
    if re.fullmatch(r"-\d{1,9}", text) and field.type.metavar == "N":
        return int(text)  # that it is too small, the spec says
    try:
        return field.type.parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error


def _each(field: JobField, texts: Sequence[str], read: Callable[[str], Any]) -> list[Any]:
    found = []
    for text in texts:
        try:
            found.append(read(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not {field.type.metavar}; {error}.") from error
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError("expected a name, = and a value")
    return name, value


def _gpus(fields: dict[str, Any]) -> None:
    # A single accelerator among --device counts as the job's GPUs if --gpus is not given.
    devices = dict(fields.get("devices", {}))
    default = JOB_FIELDS["gpu_resource"].default
    if default in devices:
        raise WrongUsage(f"--device: {default} is what --gpus requests.")
    for name, amount in devices.items():
        if not re.fullmatch(r"[0-9]{1,6}", amount):
            raise WrongUsage(f"--device: {name}={amount}: use RESOURCE=N.")
    accelerators = [name for name in devices if is_accelerator(name)]
    if not fields.get("gpus") and "gpu_resource" not in fields and len(accelerators) == 1:
        fields["gpu_resource"] = accelerators[0]
        fields["gpus"] = int(devices.pop(accelerators[0]))
        fields["devices"] = devices


def _processes(fields: dict[str, Any]) -> None:
    # torchrun's words for processes per pod; without any it is one per GPU.
    gpus = fields.get("gpus", 0)
    text = fields.get("processes", "auto")
    if text == "gpu" and not gpus:
        raise WrongUsage("--nproc-per-node gpu: the job requests no GPUs; request some with --gpus.")
    if text == "cpu":
        cpus = fields.get("cpu", "")
        if not re.fullmatch(r"[1-9]\d{0,2}", cpus):
            raise WrongUsage("--nproc-per-node cpu: set the CPUs of a pod with --cpu, e.g. --cpu 8.")
        fields["processes"] = int(cpus)
    elif text in _ONE_PER_GPU:
        fields["processes"] = max(1, gpus)
    else:
        try:
            fields["processes"] = _value(JOB_FIELDS["processes"], [text])
        except ValueError as error:
            raise WrongUsage(f"--nproc-per-node: {error}") from error


def _working_dir(fields: dict[str, Any]) -> None:
    if fields.get("sync_mode") and not fields.get("working_dir"):
        fields["working_dir"] = fields.get("sync_path") or SYNCED_WORKING_DIR


def _command(
    flags: argparse.Namespace, kind: CreatableKind, fields: Mapping[str, Any], stamp: str, continued: str
) -> dict[str, Any]:
    if flags.continue_from and not flags.trainer:
        raise WrongUsage("--continue requires --trainer; your own command has to find its checkpoints.")
    if flags.trainer:
        if flags.command:
            raise WrongUsage("COMMAND: not allowed with --trainer; put the trainer's arguments after --")
        trainer = _find(flags.trainer)
        flags.rest = _with_log_dir(trainer, trainer.own_args(flags.rest), fields.get("log_dir", ""))
        trainer.parser().parse_args(flags.rest)
        if flags.continue_from and not _has(trainer, "resume"):
            raise WrongUsage(f"--continue: the trainer {trainer.name} writes no checkpoints.")
        run = run_name(fields.get("name", ""), stamp)
        folders = _folders(trainer, flags.rest, run, continued, is_continued=bool(flags.continue_from))
        return _trainer_fields(trainer, folders, flags.rest, kind, fields)
    if flags.command and flags.rest:
        raise WrongUsage("COMMAND: use one quoted line or words after --, not both.")
    words = tuple(flags.rest)
    line = words[0] if len(words) == 1 and " " in words[0] else " ".join(flags.command)
    if not words and not line:
        words = getattr(flags, "template_command", ())
    return {"command": shell_argv(line, flags.shell) if line else words}


def _find(name: str) -> Trainer:
    try:
        return find(name)
    except LookupError as error:
        raise WrongUsage(f"--trainer: {error.args[0]}") from error


def _with_log_dir(trainer: Trainer, words: Sequence[str], log_dir: str) -> list[str]:
    """Return a trainer's arguments with the folder that the job's own flag names.

    Raises:
        WrongUsage: The arguments name another folder.
    """
    said = _flag_value("log-dir", words)
    if log_dir and said and said != log_dir:
        raise WrongUsage(f"--logdir: not together with another --log-dir after --: {said}.")
    is_left_open = log_dir and not said and _has(trainer, "log-dir")
    return [*words, *(["--log-dir", log_dir] if is_left_open else [])]


def _has(trainer: Trainer, argument: str) -> bool:
    return any(each.name == argument for each in trainer.arguments)


def _folders(
    trainer: Trainer, words: Sequence[str], run: str, continued: str, *, is_continued: bool
) -> list[str]:
    """Return the flags for the folders that a trainer's arguments leave open.

    Raises:
        WrongUsage: The arguments request a checkpoint where none can be written.
    """
    has_checkpoints = bool(_flag_value("checkpoint-dir", words))
    must_resume = _flag_value("resume", words) == "must"
    if is_continued and (has_checkpoints or _flag_value("resume", words)):
        raise WrongUsage("--continue cannot be combined with --checkpoint-dir or --resume.")
    if must_resume and not has_checkpoints:
        raise WrongUsage(
            "--resume must: a new job has no checkpoint; name an earlier job with --continue,"
            " or a folder with --checkpoint-dir."
        )
    own = f"{WORKSPACE.path}/{run}"
    folders = {"log-dir": f"{own}/{LOGS}", "checkpoint-dir": f"{own}/{CHECKPOINTS}"}
    if is_continued:
        folders = {"log-dir": f"{continued}/{LOGS}-{run}", "checkpoint-dir": f"{continued}/{CHECKPOINTS}"}
    found = [
        f"--{name}={folder}"
        for name, folder in folders.items()
        if _has(trainer, name) and not _flag_value(name, words)
    ]
    return [*found, *(("--resume=must",) if is_continued else ())]


def _trainer_fields(
    trainer: Trainer,
    folders: Sequence[str],
    arguments: Sequence[str],
    kind: CreatableKind,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    words = [*arguments, *(part for each in folders for part in each.split("=", 1))]
    mounts = fields.get("mounts", ())
    if folders and all(mount.path != WORKSPACE.path for mount in mounts):
        mounts = (*mounts, WORKSPACE)
    log_dir = posixpath.join(fields.get("working_dir", ""), _flag_value("log-dir", words))
    return {
        "trainer": trainer.name,
        "command": trainer_command(trainer, words, kind, fields),
        "log_dir": log_dir,
        "mounts": mounts,
    }


def _flag_value(name: str, words: Sequence[str]) -> str:
    value = ""
    for index, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            value = text if equals else next(iter(words[index + 1 :]), "")
    return value
