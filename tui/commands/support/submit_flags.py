"""Flags of `submit KIND`, generated from the fields of a job, and the job they describe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.job_spec import JOB_FIELDS, JobField, JobSpec, Mount, problems_of
from k8s.kinds.job_spec.field_types import Choice, Pairs, Parts, Switch, Text
from k8s.kinds.pod_template import shell_argv
from k8s.models.accelerators import is_accelerator
from k8s.models.quantity import request_and_limit
from trainer.catalogue import TRAINERS, find
from tui.commands.support.output import WrongUsage
from tui.commands.support.parser import CommandParser, SwitchAction
from tui.draft.job_draft import JobDraft, argument_in
from tui.draft.job_templates import TemplateError, template_named
from tui.settings.options import ConsoleOptions, local_user
from tui.text.kind_words import words_of

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
# Switches of Arena, and the field and text that each stands for.
_SHORT_FOR = {
    "--hostNetwork": ("host_namespaces", "network"),
    "--hostIPC": ("host_namespaces", "ipc"),
    "--hostPID": ("host_namespaces", "pid"),
    "--rdma": ("devices", "rdma/hca=1"),
}
_DEST = "spec_"
_TEMPLATE = "--template"


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
    for flag, (name, text) in _SHORT_FOR.items():
        parser.add_argument(flag, dest=f"{_DEST}{name}", action=_ShortFor, const=text, help=argparse.SUPPRESS)


class _ShortFor(SwitchAction):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            is_on = Switch().parse(values)
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        if is_on:
            super().__call__(parser, namespace, self.const, option_string)


def _add_flag(group: Any, field: JobField, *, is_hidden: bool) -> None:
    # Values stay text until all flags are known.
    longs = [flag for flag in field.flags if flag.startswith("--")]
    shorts = [flag for flag in field.flags if not flag.startswith("--")]
    action = SwitchAction if isinstance(field.type, Switch) else "append"
    more = {"dest": f"{_DEST}{field.name}", "action": action, "metavar": metavar_of(field)}
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


def draft_of(flags: argparse.Namespace, kind: CreatableKind, image: str = "") -> JobDraft:
    """Return the job that the flags describe; words after `--` are in `flags.rest`.

    Args:
        flags: The parsed flags.
        kind: Kind of the job, which counts the pods of its roles.
        image: Default image.

    Raises:
        WrongUsage: A flag is invalid.
    """
    fields = {"image": image, "user": local_user(), **_given(flags)}
    if "roles" in fields:
        fields.setdefault("workers", kind.workers_of(fields["roles"]))
    for complete in (_gpus, _processes, _working_dir):
        complete(fields)
    return _with_trainer(flags, fields) if flags.trainer else JobDraft(fields | _command(flags))


def spec_of(draft: JobDraft, kind: CreatableKind, stamp: str = "", **more: Any) -> JobSpec:
    """Return a valid job; the arguments are those of `JobDraft.spec`.

    Raises:
        WrongUsage: The kind does not support a flag, or the job is invalid.
    """
    spec = draft.spec(kind, stamp, **more)
    refused = {name: words for name, words in kind.unsupported(spec).items() if name in draft.fields}
    complain(refused | problems_of(spec))
    return spec


def complain(problems: Mapping[str, str]) -> None:
    """Reject the flags if there are problems, keyed by field."""
    if problems:
        raise WrongUsage("\n".join(f"{flag_of(name)}: {words}" for name, words in problems.items()))


def _given(flags: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that flags or their template set; `processes` of a flag is still text.

    Raises:
        WrongUsage: A flag has an invalid value.
    """
    found: dict[str, Any] = dict(getattr(flags, "template_fields", {}))
    problems: dict[str, str] = {}
    for name, field in JOB_FIELDS.items():
        texts: list[str] | None = getattr(flags, f"{_DEST}{name}", None)
        if texts is None:
            continue
        try:
            value: Any = texts[-1] if name == "processes" else _value(field, texts)
            found[name] = {**found.get(name, {}), **value} if isinstance(field.type, Pairs) else value
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
    text = str(fields.pop("processes", "auto"))
    if text == "gpu" and not fields.get("gpus"):
        raise WrongUsage("--nproc-per-node gpu: the job requests no GPUs; request some with --gpus.")
    if text == "cpu":
        text = request_and_limit(fields.get("cpu", ""))[1]
        if not re.fullmatch(r"[1-9]\d{0,2}", text):
            raise WrongUsage("--nproc-per-node cpu: set the CPUs of a pod with --cpu, e.g. --cpu 8.")
    if text not in _ONE_PER_GPU:
        try:
            fields["processes"] = _value(JOB_FIELDS["processes"], [text])
        except ValueError as error:
            raise WrongUsage(f"--nproc-per-node: {error}") from error


def _working_dir(fields: dict[str, Any]) -> None:
    if fields.get("sync_mode") and not fields.get("working_dir"):
        fields["working_dir"] = fields.get("sync_path") or SYNCED_WORKING_DIR


def _command(flags: argparse.Namespace) -> dict[str, Any]:
    if flags.continue_from:
        raise WrongUsage("--continue requires --trainer; your own command has to find its checkpoints.")
    if flags.command and flags.rest:
        raise WrongUsage("COMMAND: use one quoted line or words after --, not both.")
    words = tuple(flags.rest)
    line = words[0] if len(words) == 1 and " " in words[0] else " ".join(flags.command)
    if not words and not line:
        return {}
    return {"command": shell_argv(line, flags.shell) if line else words}


def _with_trainer(flags: argparse.Namespace, fields: dict[str, Any]) -> JobDraft:
    if flags.command:
        raise WrongUsage("COMMAND: not allowed with --trainer; put the trainer's arguments after --")
    try:
        trainer = find(flags.trainer)
    except LookupError as error:
        raise WrongUsage(f"--trainer: {error.args[0]}") from error
    words = trainer.own_args(flags.rest)
    named, log_dir = argument_in("log-dir", words), fields.pop("log_dir", "")
    if log_dir and named and named != log_dir:
        raise WrongUsage(f"--logdir: not together with another --log-dir after --: {named}.")
    if log_dir and not named:
        words += ["--log-dir", log_dir]
    trainer.parser().parse_args(words)
    if flags.continue_from and all(each.name != "resume" for each in trainer.arguments):
        raise WrongUsage(f"--continue: the trainer {trainer.name} writes no checkpoints.")
    folder, resume = (argument_in(name, words) for name in ("checkpoint-dir", "resume"))
    if flags.continue_from and (folder or resume):
        raise WrongUsage("--continue cannot be combined with --checkpoint-dir or --resume.")
    if resume == "must" and not folder:
        raise WrongUsage(
            "--resume must: a new job has no checkpoint; name an earlier job with --continue,"
            " or a folder with --checkpoint-dir."
        )
    draft = JobDraft(fields, trainer, words, WORKSPACE.path)
    mounts = fields.get("mounts", ())
    if not draft.open_folders or any(mount.path == WORKSPACE.path for mount in mounts):
        return draft
    return replace(draft, fields={**fields, "mounts": (*mounts, WORKSPACE)})


def with_kind(parser: CommandParser, kinds: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments of `submit` with the kind of its template, if none was typed.

    Args:
        parser: Parser of `submit`, which knows the flags before the kind.
        kinds: Names of kinds.
        words: The arguments as typed.
    """
    found = list(words)
    name = _template_in(found)
    at = parser.command_at(found)
    if name is None or (at is not None and (found[at] in kinds or not _is_of_kind(found[at]))):
        return found
    try:
        template = template_named(name, ConsoleOptions().templates_folder)
    except TemplateError as error:
        parser.error(f"{_TEMPLATE}: {error}")
    if not template.kind:
        parser.error(f"template {name} names no kind of job: say submit KIND {_TEMPLATE} {name}")
    kind = next((kind for kind in CREATABLE if kind.title == template.kind), None)
    if kind is None:
        parser.error(f"template {name}: no {template.kind} is made here")
    found.insert(len(found) if at is None else at, words_of(kind)[0])
    return found


def _template_in(words: Sequence[str]) -> str | None:
    found = None
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == _TEMPLATE:
            found = value if equals else next(iter(words[index + 1 :]), "")
    return found


def _is_of_kind(word: str) -> bool:
    """Return True for a word that can only follow a kind: a job's option, or a shell command."""
    return word.startswith("-") or " " in word


def fill_in(flags: argparse.Namespace, options: ConsoleOptions) -> ConsoleOptions:
    """Give the parsed flags the values of their template, as if these had been typed before them.

    Pairs are merged by name; any other repeated field is replaced by what was typed.

    Returns:
        The options, with the namespace of the template if the flags name none.

    Raises:
        WrongUsage: There is no such template.
    """
    try:
        template = template_named(flags.template, options.templates_folder)
    except TemplateError as error:
        raise WrongUsage(f"{_TEMPLATE}: {error}") from error
    fields = dict(template.fields)
    namespace = fields.pop("namespace", "")
    if name := fields.pop("trainer", ""):
        words = find(name).words_of(fields.pop("command")) or []
        if not flags.command and flags.trainer in ("", name):
            flags.trainer, flags.rest = name, [*words, *flags.rest]
    flags.template_fields = fields
    return msgspec.structs.replace(options, namespace=options.namespace or namespace)
