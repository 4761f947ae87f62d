"""Looks into the volume of the form's claim, where that is a folder of this machine, as in the sandbox."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs.pod_files import claim_folder
from k8s.jobs.run_folders import RunFolder, list_runs

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""What the packaged trainer reads below MNIST/raw, as torchvision lays it out."""


@dataclass(frozen=True, slots=True)
class VolumeContent:
    """What was seen on a volume."""

    is_visible: bool = False
    """Whether it could be looked into."""
    runs: tuple[RunFolder, ...] = ()
    """Folders with checkpoints, the one written last first."""
    missing_mnist: str = ""
    """A file of MNIST that is not where it will be read; empty when all are there."""


async def look_into_volume(
    client: Client, namespace: str, claim: str, mount_path: str, mnist: str
) -> VolumeContent:
    """Return what is on a claim's volume, as far as that can be seen from here.

    Args:
        client: The cluster.
        namespace: Of the claim.
        claim: Its name.
        mount_path: Where it is mounted in the pods.
        mnist: Folder in the pods with MNIST, absolute or below the mount; empty when it is not read.
    """
    try:
        volume = await claim_folder(client, claim, namespace) if claim else None
    except KubeError:
        return VolumeContent()
    if volume is None:
        return VolumeContent()
    return await asyncio.to_thread(_look, volume, mount_path, mnist)


def _look(volume: Path, mount_path: str, mnist: str) -> VolumeContent:
    return VolumeContent(
        True, tuple(list_runs(volume)), _missing_mnist(volume, mount_path, mnist) if mnist else ""
    )


def _missing_mnist(volume: Path, mount_path: str, mnist: str) -> str:
    """Return the first file that is missing, as the pods would name it."""
    folder = PurePosixPath(posixpath.normpath(posixpath.join(mount_path, mnist)))
    if not folder.is_relative_to(mount_path):
        return ""  # on another volume, or in the image
    raw = folder if folder.parts[-2:] == ("MNIST", "raw") else folder / "MNIST" / "raw"
    here = volume / raw.relative_to(mount_path)
    return next((f"{raw / name}" for name in MNIST_FILES if not (here / name).is_file()), "")
