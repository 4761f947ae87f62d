"""Volumes of pods as folders of this machine, and the binding of claims to such folders."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from k8s.client.client import Client
from k8s.models.resources import CLAIMS, CONFIG_MAPS, SECRETS
from k8s.sandbox.controller_runtime import Informer, Manifest
from k8s.text.errors import Conflict, KubeError, NotFound

# Annotation of a claim: its folder.
PATH = "gpuconsole.dev/path"
WORKSPACE = "workspace"


Texts = Mapping[tuple[str, str], Mapping[str, bytes]]
"""By (`configMap` or `secret`, name): the files of that object."""


class NotYet(Exception):
    """Volume whose source does not exist yet."""


class Provisioner:
    """Controller that binds every claim to a folder; the folder outlives the claim."""

    def __init__(self, client: Client, claims: Informer, root: Path) -> None:
        self._client = client
        self._claims = claims
        self._root = root

    async def reconcile(self) -> None:
        """Bind all pending claims."""
        await self.bind_all(self._claims)

    async def bind_all(self, claims: Iterable[Manifest]) -> None:
        """Bind the claims that are not bound."""
        for claim in claims:
            is_bound = (claim.get("status") or {}).get("phase") == "Bound"
            if not is_bound and not claim["metadata"].get("deletionTimestamp"):
                with suppress(NotFound):
                    await self._bind(claim["metadata"], claim["spec"])

    async def _bind(self, meta: Manifest, spec: Manifest) -> None:
        name, namespace = str(meta["name"]), str(meta["namespace"])
        folder = self._root / namespace / name
        make_private(folder)
        volume = {
            "metadata": {"annotations": {PATH: str(folder)}},
            "spec": {"volumeName": f"sandbox-{meta['uid']}"},
        }
        storage = spec["resources"]["requests"]["storage"]
        status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": {"storage": storage}}
        await self._client.patch(CLAIMS, name, volume, namespace)
        bound = await self._client.patch(CLAIMS, name, {"status": status}, namespace, subresource="status")
        self._claims.remember(bound)


async def ensure_workspace(client: Client, root: Path) -> None:
    """Create the claim `workspace` in the namespace `default` unless it exists."""
    size_gi = max(1, shutil.disk_usage(root).total // 2**30)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": WORKSPACE, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": f"{size_gi}Gi"}}},
    }
    with suppress(Conflict):
        await client.create(CLAIMS, claim, "default")


async def fetch_texts(client: Client, namespace: str) -> Texts:
    """Return the files of all ConfigMaps and Secrets of a namespace."""
    found: dict[tuple[str, str], Mapping[str, bytes]] = {}
    for config in await client.list(CONFIG_MAPS, namespace):
        plain = {key: str(value).encode() for key, value in (config.get("data") or {}).items()}
        found["configMap", config["metadata"]["name"]] = _decoded(config.get("binaryData")) | plain
    for secret in await client.list(SECRETS, namespace):
        found["secret", secret["metadata"]["name"]] = _decoded(secret.get("data"))
    return found


def _decoded(encoded: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (encoded or {}).items()}


async def prepare(pod: Manifest, client: Client, texts: Texts, root: Path) -> dict[str, Path | None]:
    """Return the folder of each of a pod's volumes; those that belong to the pod are created below `root`.

    Raises:
        NotYet: A claim, ConfigMap or Secret does not exist yet.
    """
    return {
        str(volume["name"]): await _prepare_one(volume, pod["metadata"]["namespace"], client, texts, root)
        for volume in pod["spec"].get("volumes") or ()
    }


async def _prepare_one(
    volume: Mapping[str, Any], namespace: str, client: Client, texts: Texts, root: Path
) -> Path | None:
    folder = root / str(volume["name"])
    if claim := volume.get("persistentVolumeClaim"):
        return await _claimed(str(claim.get("claimName")), namespace, client)
    if "hostPath" in volume:
        return None
    if "emptyDir" in volume:
        make_private(folder)
        return folder
    for kind, key in (("configMap", "name"), ("secret", "secretName")):
        if source := volume.get(kind):
            files = texts.get((kind, str(source.get(key))))
            if files is None and not source.get("optional"):
                raise NotYet(f'{kind.lower()} "{source.get(key)}" not found')
            _write_files(folder, files or {}, source, is_secret=kind == "secret")
            return folder
    other = next((key for key in volume if key != "name"), "nothing")
    raise KubeError(f"The sandbox has no volumes of the type {other}.")


async def _claimed(name: str, namespace: str, client: Client) -> Path:
    try:
        claim = await client.get(CLAIMS, name, namespace)
    except NotFound as error:
        raise NotYet(f'persistentvolumeclaim "{name}" not found') from error
    path = (claim["metadata"].get("annotations") or {}).get(PATH)
    if not path or (claim.get("status") or {}).get("phase") != "Bound":
        raise NotYet(f'persistentvolumeclaim "{name}" is not bound')
    os.makedirs(path, exist_ok=True)
    return Path(path)


def _write_files(
    folder: Path, files: Mapping[str, bytes], source: Mapping[str, Any], *, is_secret: bool
) -> None:
    make_private(folder)
    chosen = {str(item["key"]): item for item in source.get("items") or ()}
    for key, content in files.items():
        if chosen and key not in chosen:
            continue
        item = chosen.get(key, {})
        path = folder / os.path.normpath("/" + str(item.get("path") or key)).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(int(item.get("mode") or source.get("defaultMode") or (0o600 if is_secret else 0o644)))


def make_private(folder: Path) -> None:
    """Create a folder that only its owner may enter."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
