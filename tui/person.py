"""Who is at the terminal, as this machine knows them."""

from __future__ import annotations

import getpass


def login_name() -> str:
    """Return the login's name; empty where this machine does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
