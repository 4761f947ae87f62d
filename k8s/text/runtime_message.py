"""Messages of container runtimes and kubelets: what failed, without the layers that passed it on."""

from __future__ import annotations

from k8s.text.lazy_pattern import lazy_pattern

# Layers from the kubelet through containerd and runc to a hook; each is followed by `: ` or an escaped quote.
# Sources: containerd `internal/cri`, runc `libcontainer`, libnvidia-container.
_LAYER = lazy_pattern(
    r"(?:(?:Error: )?Error response from daemon"
    r"|(?:Error: )?failed to (?:create|start)(?: \w+){0,2} (?:task|container)\b(?: for container)?"
    r"(?: \"[^\"]{0,80}\")?"
    r"|OCI runtime \w+ failed|(?:runc|crun|youki|runsc|nvidia-container-runtime) (?:create|run) failed"
    r"|unable to start container process|error during container init|(?:container|process)_linux\.go:\d+"
    r"|(?:starting container process|container init) caused"
    r"|(?:error )?running (?:\w+ )?hook[ #]{0,2}\d*:{0,2}(?: caused)?"
    r"|exit status \d+, stdout: [^,]{0,200}, stderr"
    r"|exec command: \[[^\]]{0,2000}\]|Auto-detected mode as '\w+')"
    r"(?:\\++n|[\s\\\":])*+"
)
_ESCAPES = lazy_pattern(r"(?:\\++n|[\s\\\"])+$")
_LONGEST_CHARS = 8192


def runtime_message(message: str) -> str:
    """Return the part of a runtime's message that names the fault; other messages stay as they are."""
    end = 0
    text = message[:_LONGEST_CHARS]
    while found := _LAYER.match(text, end):
        end = found.end()
    rest = text[end:].rstrip('\\" \n').removesuffix(": unknown")
    rest = rest[:-60] + _ESCAPES.sub("", rest[-60:])
    return rest if end and rest else message


def shorten(text: str, most: int) -> str:
    """Return a text of at most `most` characters: of a longer one the beginning and, mostly, the end."""
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head].rstrip()} … {text[len(text) - most + head + 3 :].lstrip()}"
