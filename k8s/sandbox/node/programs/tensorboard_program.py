"""TensorBoard of a pod, served at a Unix socket of the pod instead of a port.

Whatever `--host`, `--port` and `--bind_all` say, others cannot connect, and the TensorBoards of two jobs,
both on port 6006, do not collide. The API server's port-forward leads to the socket.

Started as `python -P tensorboard_program.py ARGUMENTS`; needs only TensorBoard.
"""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOT_INSTALLED = (
    "tensorboard is not installed in the Python that runs gpuconsole, and the sandbox ignores images. "
    "Install gpuconsole[trainer]."
)
DEFAULT_PORT = 6006


class TensorBoardSocket:
    """TensorBoard server at the socket that stands for a port of this pod."""

    def __init__(self, wsgi_app: Any, flags: Any) -> None:
        self._port = int(flags.port or DEFAULT_PORT)
        folder = Path(os.environ["GPUCONSOLE_SANDBOX"], "pods", os.environ["GPUCONSOLE_POD_UID"], "ports")
        folder.mkdir(mode=0o700, exist_ok=True)
        tempfile.tempdir = str(folder)  # for .tensorboard-info, also where the pod sets TMPDIR=/tmp
        # By way of the folder: the path itself may be too long for a socket's address.
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        serving: Any = importlib.import_module("werkzeug.serving")
        address = f"unix:///proc/self/fd/{at}/{self._port}.sock"
        self._server = serving.make_server(address, 0, wsgi_app, threaded=True)

    def serve_forever(self) -> None:
        """Serve until the process ends."""
        self._server.serve_forever()

    def get_url(self) -> str:
        """Return the address within the pod."""
        return f"http://127.0.0.1:{self._port}/"

    def print_serving_message(self) -> None:
        """Print the port to forward."""
        print(f"TensorBoard serves port {self._port} of this pod; forward it to see it.", file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run TensorBoard; return its exit status."""
    try:
        program: Any = importlib.import_module("tensorboard.program")
        base: Any = importlib.import_module("tensorboard.plugins.base_plugin")
    except ModuleNotFoundError:
        print(NOT_INSTALLED, file=sys.stderr)
        return 1
    tensorboard = program.TensorBoard(server_class=TensorBoardSocket)
    try:
        # The fast reader is a server of its own, on a port.
        tensorboard.configure(argv=["tensorboard", *arguments, "--load_fast=false"])
    except base.FlagsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return int(tensorboard.main())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
