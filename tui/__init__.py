"""The console and the one-shot commands: everything a user sees.

May import `k8s`, `themes`, and from `trainer` the catalogue and event files.
"""

import sys

# Read by hatch, too: `importlib.metadata` takes 60 ms to import.
VERSION = "0.3.0"


def program() -> str:
    """Return the name by which the program was called; as a plugin of kubectl, `kubectl gpuconsole`."""
    is_plugin = sys.argv[0].rpartition("/")[2].startswith("kubectl-gpuconsole")
    return "kubectl gpuconsole" if is_plugin else "gpuconsole"
