"""Start of the console until its first frame and its data, and whole commands, beside kubectl."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.bench.figures import Figure, console_env, seconds, spent
from tests.load.running import LoadServer
from tests.support.terminal import Terminal

# All works are done in turn, so that a busy moment of the machine hits each; the fastest run counts
ROUNDS = 9
NODES, JOBS = 20, 40
JOB = ("biology", "whisper-0001")  # a running job of the load server's cluster
FRAME, DATA = b" Jobs", b"live "  # bytes of the first frame and all later ones, and of those with data
PAINTED_S = 120.0
Works = dict[str, Callable[[], object]]


def start(is_smoke: bool) -> Iterator[Figure]:
    with LoadServer(NODES, JOBS) as server, console_env(KUBECONFIG=str(server.kubeconfig)) as env:
        console = [sys.executable, "-P", "-m", "tui", "-A"]
        fastest = _fastest(
            {
                "frame": lambda: _open(console, env, FRAME),
                "data": lambda: _open(console, env, DATA),
                "import": lambda: spent([sys.executable, "-c", "import textual.app"], env),
                **_kubectl(env, "nodes"),
            },
            1 if is_smoke else ROUNDS,
        )
    peers = fastest.get("nodes")
    yield Figure(
        "start to the first frame", fastest["frame"], "import textual.app", fastest["import"], "<= 1.3x"
    )
    yield Figure("start to data shown", fastest["data"], "kubectl get nodes", peers, "<= first frame + 0.2 s")


def commands(is_smoke: bool) -> Iterator[Figure]:
    """Compare one-shot commands with kubectl's lists of the same objects."""
    words = {
        "list": ["-A", "list"],
        "get": ["-n", JOB[0], "get", JOB[1]],
        "top nodes": ["top", "nodes"],
        "why": ["-n", JOB[0], "why", JOB[1]],
    }
    with LoadServer(NODES, JOBS) as server, console_env(KUBECONFIG=str(server.kubeconfig)) as env:
        console = [sys.executable, "-P", "-m", "tui"]
        works: Works = {name: _run([*console, *each], env) for name, each in words.items()}
        works["--version"] = _run([*console, "--version"], env)
        works["python"] = _run([sys.executable, "-c", "pass"], env)
        fastest = _fastest(
            works | _kubectl(env, "nodes") | _kubectl(env, "pods", "-A"), 1 if is_smoke else ROUNDS
        )
    for name in words:
        peer = "nodes" if name == "top nodes" else "pods"
        yield Figure(name, fastest[name], f"kubectl get {peer}", fastest.get(peer), "<= 1.6x")
    yield Figure("--version", fastest["--version"], "python -c pass", fastest["python"])


def _kubectl(env: Mapping[str, str], plural: str, *flags: str) -> Works:
    return {plural: _run(["kubectl", "get", plural, *flags], env)} if shutil.which("kubectl") else {}


def _run(command: Sequence[str], env: Mapping[str, str]) -> Callable[[], object]:
    return lambda: spent(command, env)


def _fastest(works: Works, rounds: int) -> dict[str, float]:
    for work in works.values():
        work()  # compiles modules, and fills kubectl's cache of discovery
    times = [{name: seconds(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in times) for name in works}


def _open(command: Sequence[str], env: Mapping[str, str], wanted: bytes) -> None:
    with Terminal(command, env=env) as terminal:
        terminal.wait_for(lambda _: wanted in terminal.output, PAINTED_S)
