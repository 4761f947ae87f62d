"""Write krew's manifest of `kubectl gpuconsole` and the archive it names: `krew.py PYZ LICENSE VERSION URL`.

URL is the folder from which the archive will be downloaded. The manifest covers this machine's platform: the
zipapp holds compiled packages. Run it on each platform, and join the entries of `platforms`.
Source: krew's developer guide, "Writing a plugin manifest".
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tarfile
from pathlib import Path

import yaml

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
DESCRIPTION = """\
Shows who holds which GPU, the jobs of every kind with the reason why they wait,
hang or failed, the log of each rank, and loss curves; creates PyTorchJobs, MPIJobs
and others. Without words it opens the console; `kubectl gpuconsole list` and other
commands are for scripts.
"""
CAVEATS = f"It needs Python {sys.version_info[0]}.{sys.version_info[1]} as python3."


def write(zipapp: Path, license_file: Path, version: str, url: str) -> Path:
    """Write both beside the zipapp and return the path of the manifest."""
    system, machine = platform.system().lower(), platform.machine()
    arch = ARCHITECTURES.get(machine, machine)
    archive = zipapp.with_name(f"gpuconsole-v{version}-{system}-{arch}.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(zipapp, zipapp.name)
        packed.add(license_file, "LICENSE")
    release = {
        "selector": {"matchLabels": {"os": system, "arch": arch}},
        "uri": f"{url.rstrip('/')}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "files": [{"from": name, "to": "."} for name in (zipapp.name, "LICENSE")],
        "bin": zipapp.name,
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpuconsole"},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Console for training jobs on GPUs",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [release],
        },
    }
    path = zipapp.with_name("gpuconsole.yaml")
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])
