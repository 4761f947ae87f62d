"""What views and commands wish for, and who does it: one function each, in a file for each subject.

A function takes the console and the wish. Its file is imported when it is first wished for,
because a console is opened many times a day.
"""

from __future__ import annotations

from collections.abc import Mapping

WISHES: Mapping[str, str] = {
    "jobs": "navigate",
    "nodes": "navigate",
    "events": "navigate",
    "volumes": "navigate",
    "volume": "navigate",
    "info": "about",
    "holders": "navigate",
    "open": "navigate",
    "logs": "navigate",
    "previous": "navigate",
    "curves": "navigate",
    "yaml": "navigate",
    "why": "navigate",
    "help": "window",
    "palette": "window",
    "jump": "window",
    "ns": "context",
    "own-namespace": "context",
    "ctx": "context",
    "permissions": "context",
    "retry": "context",
    "new": "jobs",
    "delete": "jobs",
    "suspend": "jobs",
    "resume": "jobs",
    "clone": "export",
    "copy": "export",
    "save": "export",
    "bundle": "export",
    "shell": "pods",
    "forward": "pods",
    "theme": "window",
    "back": "window",
    "last": "window",
    "quit-or-back": "window",
    "quit": "window",
}
"""Each wish, which is also the name of a command where it is one, and the file that does it."""
