"""Kinds that servers announced, stored in the state folder so that commands need not ask again."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.cluster.discovery import ServedKinds
from k8s.text.home import read_named_file
from tui.settings.options import ConsoleOptions

SERVED_FILE = "discovery.json"
# As kubectl's; until then a new kind in a known group is not seen by commands.
LONGEST_S = 600.0
# The oldest are dropped beyond this number of servers.
MOST_SERVERS = 20


class _StoredAnswer(msgspec.Struct):
    at_s: float
    served: ServedKinds


def open_mirror(
    options: ConsoleOptions, client: Client, *, is_narrow: bool = False, has_nodes: bool = True
) -> ClusterMirror:
    """Return a mirror that begins with the kinds stored for its server, and stores newer ones."""
    namespace = "" if options.is_all_namespaces else options.namespace or client.config.namespace
    mirror = ClusterMirror(client, namespace, is_narrow=is_narrow, has_nodes=has_nodes)
    mirror.known_served = find_served(options.state_folder, client.config)
    mirror.store_served = partial(store_served, options.state_folder, client.config)
    return mirror


def find_served(state_folder: Path, config: ClusterConfig) -> ServedKinds | None:
    """Return the kinds that a server announced within the last ten minutes; None if they are not known."""
    found = _read(state_folder / SERVED_FILE).get(_key(config))
    is_new = found is not None and 0 <= time.time() - found.at_s < LONGEST_S
    return found.served if found is not None and is_new else None


def store_served(state_folder: Path, config: ClusterConfig, served: ServedKinds) -> None:
    """Store the kinds that a server announced, unless a group did not answer. Errors are ignored."""
    if None in served.plurals.values():
        return
    from tui.settings.private_file import make_private_folder, write_private_file  # seldom needed

    answers = _read(state_folder / SERVED_FILE) | {_key(config): _StoredAnswer(time.time(), served)}
    newest = sorted(answers.items(), key=lambda item: item[1].at_s)[-MOST_SERVERS:]
    with suppress(OSError):
        make_private_folder(state_folder)
        write_private_file(state_folder / SERVED_FILE, msgspec.json.encode(dict(newest)).decode())


def _key(config: ClusterConfig) -> str:
    # A cluster that was made anew at the same address has a new certificate authority.
    authority = f"{config.ssl_ca_pem}\n{config.ssl_ca_cert or ''}\n{config.proxy or ''}"
    return f"{config.host} {hashlib.sha256(authority.encode()).hexdigest()[:16]}"


def _read(path: Path) -> dict[str, _StoredAnswer]:
    # An unreadable file counts as empty, and is replaced.
    try:
        return msgspec.json.decode(read_named_file(path, must_be_own=True), type=dict[str, _StoredAnswer])
    except (OSError, ValueError, RecursionError):
        return {}
