"""`submit`: create a job from flags or manifests."""

from __future__ import annotations

import argparse
import asyncio
import posixpath
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from k8s.client.auth.cluster_config import load
from k8s.client.client import Client, fetch_username
from k8s.cluster.discovery import discover
from k8s.jobs.create import JobRejected, create_job, create_manifest, job_objects
from k8s.jobs.owned_objects import OwnedObject, owned_objects_of, problems_with_files, with_files
from k8s.jobs.pod_files import local_folder
from k8s.jobs.run_folders import list_runs, run_stamp
from k8s.kinds import CREATABLE, KINDS, CreatableKind, JobRef, Manifest
from k8s.kinds.job_spec import (
    LOG_DIR_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
    JobFiles,
    JobSpec,
    wants_gpus,
)
from k8s.kinds.parse import USERS
from k8s.kinds.pod_code import PASSWORD, USERNAME, credentials_in
from k8s.models.resources import Resource
from k8s.reasons.cause import Cause
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import Conflict, Forbidden, Invalid, KubeError, NoCluster, NotFound
from tui.commands.support.connect import check_may_change, cluster, login_dialog, read_jobs
from tui.commands.support.created import add_show_secrets, namespace_of, write_created, write_owned_objects
from tui.commands.support.followed import follow_to_end
from tui.commands.support.output import WrongUsage, confirm, is_interactive, prompt_password, write_stderr
from tui.commands.support.parser import CommandParser
from tui.commands.support.submit_flags import (
    WORKSPACE,
    add_spec_arguments,
    complain,
    draft_of,
    fill_in,
    model_flags,
    spec_of,
    with_kind,
)
from tui.draft.job_files import load_job_files, needs_git_credentials
from tui.draft.manifest_yaml import ManifestObject, read_manifests, versions_known
from tui.draft.preflight import CheckedObject, check_manifests, check_submit
from tui.draft.volume import EarlierRun, EarlierRuns, earlier_runs, inspect_volume
from tui.settings.options import ConsoleOptions, command_line, local_user
from tui.text.kind_words import NOT_MADE, words_of

# The sandbox runs no images: `python` is this machine's.
SANDBOX_IMAGE = "local"
# Of the flags that stand before the kind or after it.
_DEFAULTS = {
    "dry_run": "",
    "output": "",
    "show_secrets": False,
    "template": None,
    "force": False,
    "follow": False,
}
# An expected refusal of the server, after the start of its warning: `PyTorchJob bert: ` of several objects.
_Refusal = tuple[str, Cause]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job kinds with their flags, and `-f`."""
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="create the manifests in this file; - reads standard input"
    )
    _add_common(parser)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND")
    for word, kind in reversed({words_of(kind)[0]: kind for kind in reversed(CREATABLE)}.items()):
        aliases = words_of(kind)[1:]
        child = kinds.add_parser(
            word,
            aliases=aliases,
            help=f"create a job of kind {kind.title}",
            description=f"Create a job of kind {kind.title}. A trainer's ARGUMENTS go after --",
            usage=f"{parser.prog} {word} --name NAME --image IMAGE [OPTIONS] COMMAND\n"
            f"       {parser.prog} {word} --name NAME --image IMAGE [OPTIONS] --trainer NAME [-- ARGUMENTS]",
        )
        add_spec_arguments(child, kind.lacks)
        _add_common(child)
    for word, sentence in NOT_MADE.items():
        refusing = kinds.add_parser(word, prog=parser.prog)
        assert isinstance(refusing, CommandParser)
        refusing.refusal = f"{sentence} Its manifest can be submitted with -f."
    if isinstance(parser, CommandParser):
        parser.rewrite = lambda words: with_kind(parser, tuple(kinds.choices), words)


def _add_common(parser: argparse.ArgumentParser) -> None:
    # Suppressed, or else the kind's parser would overwrite what was said before the kind.
    parser.add_argument(
        "--dry-run",
        choices=("client", "server"),
        default=argparse.SUPPRESS,
        help="do not create it: validate it here, or let the server validate it",
    )
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json"), default=argparse.SUPPRESS, help="print the manifest"
    )
    add_show_secrets(parser)
    parser.add_argument(
        "--template",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="start from a template; other flags override its values; see gpuconsole templates",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        default=argparse.SUPPRESS,
        help="create it even if no node is large enough for it",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print the log of rank 0 until the job has ended, and exit as it does",
    )


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Create a job, or print it on a dry run."""
    flags = argparse.Namespace(**{**_DEFAULTS, **vars(flags)})
    if not flags.dry_run:
        check_may_change(options, "submit a job")
    if models := model_flags(flags):
        write_stderr(f"{', '.join(models)}: registers nothing; there is no model registry here.")
    if flags.filename and flags.template:
        raise WrongUsage("--template cannot be combined with -f.")
    if bool(flags.filename) == bool(flags.kind):
        words = ", ".join(dict.fromkeys(words_of(kind)[0] for kind in CREATABLE))
        raise WrongUsage(f"Nothing to submit: name a kind of job ({words}) or a file with -f.")
    if flags.template is not None:
        options = fill_in(flags, options)
    if flags.follow and flags.dry_run:
        raise WrongUsage("--follow cannot be combined with --dry-run.")
    submit = _submit_file if flags.filename else _submit_flags
    return await submit(options, flags)


async def _submit_file(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    # Mistakes are answered before a cluster is reached for; standard input can be read only once.
    wanted = _from_file(flags, options.namespace)
    jobs = [each for each in wanted if each.resource in {kind.resource for kind in KINDS}]
    if flags.follow and len(jobs) != 1:
        raise WrongUsage(f"--follow: the file has {len(jobs)} jobs; to follow one: gpuconsole logs NAME -f")
    if flags.dry_run == "client":
        _set_user(jobs, local_user())
        write_created(wanted, await _namespace(options), "created (dry run)", flags)
        return 0
    async with cluster(options) as client:
        namespace = client.config.namespace
        _set_user(jobs, await fetch_username(client) or local_user())
        checked = await check_manifests(client, wanted, namespace, lambda: _nodes(options, client))
        refusals = _describe_created(checked)
        if not all(_may_start(each, refusals, flags) for each in checked):
            return 1
        refs = []
        with _reported_once(refusals):
            if len(wanted) > 1 and not flags.dry_run:
                await _check_by_server(client, wanted, namespace)
            for each in wanted:
                home = namespace_of(each.manifest, namespace)
                await _report_checkpoints(client, *each, home)
                ref = await create_manifest(
                    client, each.resource, each.manifest, home, dry_run=bool(flags.dry_run)
                )
                words = "created (server dry run)" if flags.dry_run else "created"
                write_created([each], namespace, words, flags)
                refs += [ref] if each in jobs else []
        if flags.dry_run or len(refs) != 1:
            return 0
        return await _go_on(options, client, refs[0], flags)


async def _submit_flags(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    kinds = tuple(kind for kind in CREATABLE if flags.kind in words_of(kind))
    draft = draft_of(flags, kinds[0], SANDBOX_IMAGE if options.is_sandbox else "")
    stamp = run_stamp(datetime.now(UTC))
    spec = spec_of(draft, kinds[0], stamp)
    files = replace(await _read_files(spec), git_login=_git_credentials(spec, flags.git_user))
    if flags.dry_run == "client":
        namespace, folder = await _namespace(options), _folder_without_cluster(flags)
        spec = spec_of(draft, kinds[0], stamp, namespace=namespace, continued=folder)
        _print_all(kinds[0], spec, files, "created (dry run)", flags)
        return 0
    async with cluster(options) as client:
        namespace = client.config.namespace
        kind = next(iter(await discover(client, kinds)), kinds[0]) if len(kinds) > 1 else kinds[0]
        spec = spec_of(draft, kind, stamp, namespace=namespace)
        if draft.trainer is not None:
            folder = await _continued_folder(options, client, flags, spec)
            spec = spec_of(draft, kind, stamp, namespace=namespace, continued=folder)
        spec = replace(spec, user=await fetch_username(client) or spec.user)
        objects = job_objects(kind, spec, files, is_optional_too=False)
        nodes = await _nodes(options, client) if wants_gpus(spec) else None
        causes = await check_submit(client, kind, spec, objects, nodes)
        checked = CheckedObject(f"{kind.title} {spec.name}", causes)
        refusals = _describe_created([checked])
        if not _may_start(checked, refusals, flags):
            return 1
        used: list[OwnedObject] = []
        with _reported_once(refusals):
            ref = await create_job(
                client,
                kind,
                spec,
                files=files,
                dry_run=bool(flags.dry_run),
                on_upload=_describe_upload,
                on_found=used.append,
            )
        words = "created (server dry run)" if flags.dry_run else "created"
        _print_all(kind, spec, files, words, flags, used)
        return 0 if flags.dry_run else await _go_on(options, client, ref, flags)


async def _read_files(spec: JobSpec) -> JobFiles:
    try:
        files = await load_job_files(spec)
    except JobRejected as error:
        complain(error.causes)
        raise
    complain(problems_with_files(with_files(spec, files), files))
    for path in files.left_out:
        write_stderr(f"{path}: not sent, for it is a link that leads out of the folder.")
    return files


def _git_credentials(spec: JobSpec, user: str) -> Mapping[str, str]:
    """Prompt for the repository's password; return the Secret's values, empty without a user.

    Raises:
        WrongUsage: The job needs none, has a Secret, or there is no terminal to prompt at.
    """
    if not user:
        return {}
    if not needs_git_credentials(spec):
        raise WrongUsage("--git-user: only code from git over https takes a user (--sync-mode git).")
    if spec.git_secret or credentials_in(spec):
        raise WrongUsage("--git-user: the repository already has credentials.")
    if not is_interactive():
        raise WrongUsage("--git-user asks for a password, and there is no terminal: use --git-secret NAME.")
    password = prompt_password(f"Password or token of {user} for {spec.sync_source}: ")
    if not password:
        raise WrongUsage("--git-user: no password was typed.")
    return {USERNAME: user, PASSWORD: password}


async def _check_by_server(client: Client, wanted: Sequence[ManifestObject], namespace: str) -> None:
    """Let the server validate all objects before the first is created, so that none is created in part.

    Raises:
        KubeError: The server rejected an object.
    """
    for resource, manifest in wanted:
        home = namespace_of(manifest, namespace)
        try:
            await create_manifest(client, resource, manifest, home, dry_run=True)
        except (Conflict, Forbidden, Invalid, NotFound) as error:
            if not error.is_foreign:
                error.hint = f"{error.hint} Nothing was created.".strip()
                raise


def _folder_without_cluster(flags: argparse.Namespace) -> str:
    text = str(flags.continue_from)
    if text and not text.startswith("/"):
        raise WrongUsage(
            f"--continue {text}: with --dry-run=client name its folder, e.g. /workspace/{text}-2026…"
        )
    return EarlierRuns().find(text).folder if text else ""


async def _continued_folder(
    options: ConsoleOptions, client: Client, flags: argparse.Namespace, spec: JobSpec
) -> str:
    claim = next((mount.claim for mount in spec.mounts if mount.path == WORKSPACE.path), "")
    volume = await inspect_volume(client, spec.namespace, claim, WORKSPACE.path, "")
    runs = volume.runs if volume.is_visible else None
    if not flags.continue_from:
        found = earlier_runs((), runs, WORKSPACE.path).by_job.get(spec.name)
        if found is not None and WORKSPACE.path in spec.log_dir:
            words = found.words(time.time())
            write_stderr(f"Starts anew; to go on from {words}: --continue {spec.name}")
        return ""
    snapshot = await read_jobs(options, client)
    jobs = [job for job in snapshot.jobs if job.ref.namespace == spec.namespace]
    earlier = earlier_runs(jobs, runs, WORKSPACE.path, knows_all_jobs=not snapshot.missing_jobs)
    try:
        run = earlier.find(flags.continue_from)
    except LookupError as error:
        raise WrongUsage(f"--continue: {error.args[0]}") from error
    write_stderr(f"Continues {run.words(time.time())}.")
    return run.folder


async def _report_checkpoints(client: Client, resource: Resource, manifest: Manifest, namespace: str) -> None:
    meta = manifest["metadata"]
    annotations = meta.get("annotations")
    kind = next((each for each in KINDS if each.resource == resource), None)
    if kind is None or not isinstance(annotations, dict) or not annotations.get(TRAINER_ANNOTATION):
        return
    folder = posixpath.dirname(str(annotations.get(LOG_DIR_ANNOTATION) or ""))
    try:
        replicas = kind.replicas(manifest)
        root = await local_folder(client, replicas[0].template, namespace, folder) if replicas else None
    except (KubeError, AttributeError, TypeError, ValueError):
        return  # what is wrong with it, the server says
    runs = await asyncio.to_thread(list_runs, root.parent) if root is not None else []
    for run in (run for run in runs if root is not None and run.name == root.name):
        found = EarlierRun(run.job, folder, "", run.step, run.saved_s)
        write_stderr(f"Continues {found.words(time.time())}: its manifest names {folder}.")


def _describe_upload(sent_bytes: int, total_bytes: int) -> None:
    percent = 100 * sent_bytes // total_bytes
    if sys.stderr.isatty():
        end = "\n" if sent_bytes == total_bytes else ""
        sys.stderr.write(f"\rSending the folder: {percent} % of {total_bytes / 2**20:.1f} MiB{end}")
        sys.stderr.flush()
    elif sent_bytes == total_bytes:
        write_stderr(f"Sent the folder: {total_bytes / 2**20:.1f} MiB.")


async def _go_on(options: ConsoleOptions, client: Client, ref: JobRef, flags: argparse.Namespace) -> int:
    if ref.namespace != client.config.namespace:
        options = msgspec.structs.replace(options, namespace=ref.namespace)
    if flags.follow:
        return await follow_to_end(options, client, ref)
    if sys.stderr.isatty():
        for words in (("logs", ref.name, "-f"), ("get", ref.name), ("why", ref.name)):
            write_stderr(f"  {command_line(options, *words)}")
    return 0


def _from_file(flags: argparse.Namespace, namespace: str) -> list[ManifestObject]:
    if flags.rest:
        raise WrongUsage("Words after -- are not allowed with -f.")
    wanted = read_manifests(flags.filename)
    for resource, manifest in wanted:
        if resource.api_version not in (known := versions_known(resource)):
            words = f"{resource.kind} {resource.api_version} is not known here, only {', '.join(known)}"
            write_stderr(f"Warning: {words}; it is sent as it stands.")
        said = manifest["metadata"].get("namespace")
        if namespace and said and said != namespace:
            raise WrongUsage(f"-n {namespace}: the manifest names namespace {said}.")
    return wanted


def _set_user(jobs: Sequence[ManifestObject], user: str) -> None:
    for job in jobs:
        meta = job.manifest["metadata"]
        said = meta.get("annotations") or {}
        if user and isinstance(said, dict) and not any(said.get(key) for key in USERS):
            meta["annotations"] = {**said, USER_ANNOTATION: user}


def _describe_created(checked: Sequence[CheckedObject]) -> list[_Refusal]:
    """Print warnings, and return those refusals that the server will report by itself."""
    refusals: list[_Refusal] = []
    for title, found in checked:
        start = f"{title}: " if title and len(checked) > 1 else ""
        never = _never(found)
        for cause in found:
            if cause.is_refusal:
                refusals.append((start, cause))
            elif cause is not never:
                write_stderr(f"Warning: {start}{cause.warning}.")
    return refusals


def _never(causes: Sequence[Cause]) -> Cause | None:
    return next((cause for cause in causes if cause.is_never), None)


def _may_start(checked: CheckedObject, refusals: Sequence[_Refusal], flags: argparse.Namespace) -> bool:
    """Confirm the creation of a job that would never start.

    Raises:
        KubeError: There is no terminal to ask at; expected refusals of the server are reported first.
    """
    title, found = checked
    if (never := _never(found)) is None:
        return True
    if flags.force or flags.dry_run:
        write_stderr(f"Warning: {never.warning}.")
        return True
    what = f"{title} {never.warning}."
    if not is_interactive():
        _warn_of(refusals)
        raise KubeError(what, "Nothing was created.", "To create it all the same: --force")
    return confirm(f"{what} Create it all the same?")


@contextmanager
def _reported_once(refusals: Sequence[_Refusal]) -> Iterator[None]:
    """Create something, then warn of the expected refusals that the server did not mention.

    Advice is added to the server's refusal if that has none.
    """
    try:
        yield
    except KubeError as error:
        said = [each for each in refusals if _is_reported(each[1], error)]
        _warn_of([each for each in refusals if each not in said])
        for _, cause in said:
            error.hint = _with_remedy(error.hint, cause)
        raise
    _warn_of(refusals)


def _warn_of(refusals: Sequence[_Refusal]) -> None:
    for start, cause in refusals:
        write_stderr(f"Warning: {start}{cause.warning}.")


def _is_reported(refusal: Cause, error: KubeError) -> bool:
    causes: Mapping[str, str] = getattr(error, "causes", {})
    if not refusal.about:
        return refusal.field in causes
    is_same = f" {refusal.about} " in f"{error.what.removesuffix('.')} "
    return is_same and (refusal.field in causes or not causes)


def _with_remedy(hint: str, refusal: Cause) -> str:
    remedy = f"{refusal.remedy[:1].upper()}{refusal.remedy[1:]}."
    if hint and (refusal.field != "kind" or remedy.lower() in hint.lower()):
        return hint
    return f"{remedy} {hint}".rstrip()


async def _nodes(options: ConsoleOptions, client: Client) -> ClusterSnapshot | None:
    try:
        return await read_jobs(options, client)
    except KubeError:
        return None


async def _namespace(options: ConsoleOptions) -> str:
    try:
        config = await load(options.kubeconfig, options.context, options.namespace, dialog=login_dialog())
    except NoCluster:
        return options.namespace or "default"
    return config.namespace


def _print_all(
    kind: CreatableKind,
    spec: JobSpec,
    files: JobFiles,
    words: str,
    flags: argparse.Namespace,
    used: Collection[OwnedObject] = (),
) -> None:
    objects = [ManifestObject(*each) for each in job_objects(kind, spec, files)]
    shown = objects if flags.output else [each for each in objects if each.resource == kind.resource]
    write_created(shown, spec.namespace, words, flags)
    if not flags.output:
        write_owned_objects(owned_objects_of(kind, with_files(spec, files), files), words, used)
