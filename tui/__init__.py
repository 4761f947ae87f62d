"""The console and the one-shot commands: everything a user sees.

May import `k8s`, `themes`, and from `trainer` the catalogue and event files.
"""

# Read by hatch, too: `importlib.metadata` takes 60 ms to import.
VERSION = "0.3.0"
