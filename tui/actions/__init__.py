"""What views and commands wish for, and who does it: one function each, in a file for each subject.

A function takes the console and the wish. Its file is imported when it is first wished for,
because a console is opened many times a day.
"""

from __future__ import annotations

from collections.abc import Mapping

WISHES: Mapping[str, str] = {
    "jobs": "places",
    "nodes": "places",
    "events": "places",
    "volumes": "places",
    "volume": "places",
    "info": "about",
    "holders": "places",
    "open": "places",
    "logs": "places",
    "previous": "places",
    "curves": "places",
    "yaml": "places",
    "why": "places",
    "help": "console",
    "palette": "console",
    "jump": "console",
    "ns": "clusters",
    "own-namespace": "clusters",
    "ctx": "clusters",
    "rights": "clusters",
    "retry": "clusters",
    "new": "changes",
    "delete": "changes",
    "suspend": "changes",
    "resume": "changes",
    "clone": "keeping",
    "copy": "keeping",
    "save": "keeping",
    "bundle": "keeping",
    "shell": "pods",
    "forward": "pods",
    "theme": "console",
    "back": "console",
    "last": "console",
    "quit-or-back": "console",
    "quit": "console",
}
"""Each wish, which is also the name of a command where it is one, and the file that does it."""
