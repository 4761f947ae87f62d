"""Desktop notifications by escape sequences: OSC 9, 99 or 777, also through tmux."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.text.sanitize import sanitize

MAX_TITLE, MAX_BODY = 80, 200


def notification(title: str, body: str, env: Mapping[str, str]) -> str:
    """Return the escape sequence of a notification; empty if the terminal would print it as text.

    The texts need not be sanitised. tmux passes it on only with `set -g allow-passthrough on`.
    """
    term, is_in_tmux = env.get("TERM", ""), bool(env.get("TMUX"))
    is_in_screen = bool(env.get("STY")) or (term.startswith("screen") and not is_in_tmux)
    if term in ("", "dumb", "linux") or term.startswith("vt") or is_in_screen:
        return ""
    plain = _sequence(_protocol(term, env), _plain(title, MAX_TITLE), _plain(body, MAX_BODY))
    if is_in_tmux:
        # Source: tmux(1), allow-passthrough.
        doubled = plain.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return plain


def _protocol(term: str, env: Mapping[str, str]) -> str:
    program = env.get("TERM_PROGRAM", "")
    if "kitty" in term or env.get("KITTY_WINDOW_ID"):
        return "99"
    if program in ("WezTerm", "ghostty") or env.get("VTE_VERSION") or env.get("WEZTERM_PANE"):
        return "777"
    if term.startswith(("foot", "rxvt", "xterm-ghostty", "wezterm")):
        return "777"
    return "9"  # iTerm2's; others ignore it


def _sequence(protocol: str, title: str, body: str) -> str:
    # Sources: kitty's desktop-notifications, urxvt's notify extension, iTerm2's escape codes.
    if protocol == "99":
        more = f"\x1b]99;i=gpuconsole:p=body;{body}\x1b\\" if body else ""
        return f"\x1b]99;i=gpuconsole:d={0 if body else 1};{title}\x1b\\{more}"
    if protocol == "777":
        return f"\x1b]777;notify;{title};{body}\x1b\\"
    return f"\x1b]9;{': '.join(filter(None, (title, body)))}\x1b\\"


def _plain(text: str, most: int) -> str:
    # Semicolons separate fields; ConEmu takes a number before the first one for a command.
    text = sanitize(" ".join(text.split())).replace(";", ",")
    return text if len(text) <= most else f"{text[: most - 1]}…"
