"""Read files in a job's pods: through the API, or from a volume on this machine.

Through the API means `exec`: the container must run and have `sh`, `find`, `wc`, `tail` and `head`, as
busybox does.
A volume claim whose folder is on this machine (the sandbox annotates it) is read directly, which
also works when the pods are gone.
"""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.models.resources import CLAIMS
from k8s.text.errors import ExecFailed, NotFound

# Annotation of a claim whose volume is a folder on this machine.
LOCAL_PATH = "gpuconsole.dev/path"
# Limit of one `read_from`.
READ_LIMIT_BYTES = 32 * 2**20
_READ = 'exec <"$1" && tail -c "+$2" | head -c "$3"'
# The folders of a program may be many.
SEARCH_S = 20.0
# A search may go on after its connection has ended.
_SEARCH = (
    '[ "$PWD" = / ] || set -- "$PWD" "$@"; '
    f"if timeout 1 true 2>/dev/null; then limit='timeout {SEARCH_S:.0f}'; else limit=; fi; "
    '$limit find "$@" 2>/dev/null | head -n 500'
)
SEARCH_DEPTH = 6
# Prints files with their sizes, then those to which links lead. busybox's `find -L` does not end in a loop,
# so links are resolved here: each folder is read once, and none that contains its link. Nor does busybox run
# `-exec … {} +` within parentheses.
_LIST = """
IFS='
'
set -f
walk() {
  found=$(find -H "$@" -type l -print -o -type f MATCHING -exec wc -c {} +) || return
  printf '%s\\n' "$found"
  more=$more$IFS$found
}
walk "$1" || exit
exec 2>/dev/null
seen=$(cd "$1" && pwd -P)
for depth in 1 2 3; do
  links=$more more=
  for link in $links; do
    case $link in /*) ;; *) continue;; esac
    [ ! -f "$link" ] || case ${link##*/} in PATTERN) wc -c "$link";; esac
    [ -d "$link" ] && real=$(cd "$link" && pwd -P) && at=$(cd "${link%/*}" && pwd -P) || continue
    for each in $seen; do case $real/ in "${each%/}"/*) continue 2;; esac; done
    case $at/ in "${real%/}"/*) continue;; esac
    seen=$seen$IFS$real
    walk "$link" -maxdepth DEPTH -xdev
  done
done
exit 0
"""


class RemoteFile(msgspec.Struct, frozen=True):
    """File in a container."""

    path: str
    size_bytes: int


async def list_files(
    client: Client, pod: str, namespace: str, folder: str, names: Sequence[str], *, container: str = ""
) -> list[RemoteFile]:
    """Return the files below a folder of a running container whose names match a glob, by path.

    Links to files and folders are followed, as `trainer.tfevents` does.
    """
    words = ["sh", "-c", _list_script(names), "sh", folder]
    output = await client.run(pod, namespace, words, container=container)
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        size, _, path = line.strip().partition(" ")
        if size.isdecimal() and len(size) < 19 and path.startswith("/"):
            found.append(RemoteFile(path, int(size)))
    return sorted(found, key=lambda file: file.path)


def _list_script(names: Sequence[str]) -> str:
    matching, pattern = shlex.join(_matching(names)), "|".join(names)
    return _LIST.replace("MATCHING", matching).replace("PATTERN", pattern).replace("DEPTH", str(SEARCH_DEPTH))


async def find_folders(
    client: Client,
    pod: str,
    namespace: str,
    roots: Sequence[str],
    names: Sequence[str],
    *,
    container: str = "",
) -> list[str]:
    """Return the folders of a running container, below `roots` and where it works, with files that match.

    Stops after 500 files.

    Raises:
        KubeError: The command could not be run, or took longer than `SEARCH_S`.
    """
    depth = ("-maxdepth", str(SEARCH_DEPTH), "-xdev", "-type", "f")
    words = ["sh", "-c", _SEARCH, "sh", *roots, *depth, *_matching(names)]
    try:
        async with asyncio.timeout(SEARCH_S):
            output = await client.run(pod, namespace, words, container=container)
    except TimeoutError as error:
        raise ExecFailed(f"Could not search {pod}.", f"It took more than {SEARCH_S:.0f} s.") from error
    paths = output.decode("utf-8", "replace").splitlines()
    return sorted({posixpath.dirname(path) for path in paths if path.startswith("/")})


def _matching(names: Sequence[str]) -> list[str]:
    either = [word for name in names for word in ("-o", "-name", name)]
    return ["(", *either[1:], ")"]


async def read_from(
    client: Client,
    pod: str,
    namespace: str,
    path: str,
    offset: int,
    *,
    container: str = "",
    limit_bytes: int = READ_LIMIT_BYTES,
) -> bytes:
    """Return a file's content from an offset, at most `limit_bytes`."""
    words = ["sh", "-c", _READ, "sh", path, str(offset + 1), str(limit_bytes)]
    return await client.run(pod, namespace, words, container=container, limit_bytes=limit_bytes)


def is_on_claim(template: Mapping[str, Any], path: str) -> bool:
    """Return True if a container's path lies on a volume claim that its pod template mounts."""
    return _claim_at(template, path) is not None


async def local_folder(client: Client, template: Mapping[str, Any], namespace: str, path: str) -> Path | None:
    """Return the local folder of a container's absolute path; None if it is not on this machine.

    Only a cluster on this machine is trusted to name a local folder.
    """
    mounted = _claim_at(template, path) if client.config.is_local else None
    if mounted is None:
        return None
    claim_name, inside = mounted
    root = await claim_folder(client, claim_name, namespace)
    return None if root is None else root / inside


async def claim_folder(client: Client, claim_name: str, namespace: str) -> Path | None:
    """Return the local folder of a claim's volume; None if it is not on this machine."""
    if not client.config.is_local:
        return None
    try:
        claim = await client.get(CLAIMS, claim_name, namespace)
    except NotFound:
        return None
    root = ((claim.get("metadata") or {}).get("annotations") or {}).get(LOCAL_PATH)
    return Path(root) if root and Path(root).is_dir() else None


def _claim_at(template: Mapping[str, Any], path: str) -> tuple[str, PurePosixPath] | None:
    # The claim and the path within it; None if another kind of volume is mounted there.
    pod = template.get("spec") or {}
    claims = {
        volume.get("name"): volume["persistentVolumeClaim"].get("claimName")
        for volume in pod.get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    wanted = PurePosixPath(posixpath.normpath(path))
    best: tuple[str, PurePosixPath] | None = None
    longest = -1
    for container in pod.get("containers") or ():
        for mount in container.get("volumeMounts") or ():
            at = PurePosixPath(str(mount.get("mountPath") or "/"))
            if wanted.is_relative_to(at) and len(at.parts) > longest:
                longest = len(at.parts)
                claim = claims.get(mount.get("name"))
                below = PurePosixPath(str(mount.get("subPath") or ""))
                is_known = claim and not mount.get("subPathExpr") and not below.is_absolute()
                best = (str(claim), below / wanted.relative_to(at)) if is_known else None
    return None if best is None or ".." in best[1].parts else best
