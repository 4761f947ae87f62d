"""Pack an installed folder of packages into one executable file: `zipapp.py FOLDER FILE`.

Compiled packages cannot be imported from an archive, so the file unpacks itself into the user's cache when it
starts for the first time. It fits the platform and the version of Python that it was made with.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

START = """
import hashlib, os, shutil, sys, tempfile, zipfile
from pathlib import Path

VERSION, DIGEST = {version!r}, {digest!r}


def unpack() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuconsole"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.stat().st_uid != os.geteuid():
        sys.exit(f"{{cache}} belongs to another user. Set XDG_CACHE_HOME to a folder of your own.")
    home = cache / f"app-{{DIGEST[:16]}}"
    if not home.is_dir():
        print("Unpacking gpuconsole, once.", file=sys.stderr)
        # Another start may do the same: the first to rename wins.
        folder = Path(tempfile.mkdtemp(dir=cache, prefix=".app-"))
        try:
            with zipfile.ZipFile(sys.argv[0]) as archive:
                archive.extractall(folder)
            try:
                folder.rename(home)
            except OSError:
                if not home.is_dir():
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return home


if sys.version_info[:2] != VERSION:
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"This gpuconsole needs Python {{VERSION[0]}}.{{VERSION[1]}}; this is {{found}}.")
sys.path[0] = str(unpack())
from tui.__main__ import main

sys.exit(main())
"""


def pack(folder: Path, target: Path) -> None:
    """Write the executable file with everything below `folder`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            start = START.format(version=sys.version_info[:2], digest=digest.hexdigest())
            archive.writestr("__main__.py", start)
            for path in paths:
                archive.write(path, path.relative_to(folder))
    target.chmod(0o755)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
