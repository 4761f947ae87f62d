"""Program that runs inside a pod: asks each rank's process where it is, and prints the answers as JSON.

It is sent as text (`inspect.py`) to the image's Python, with nothing but the standard library. Sources of a
stack, the first that answers: torch's worker server, faulthandler by signal (both armed by
`trainer/debuggable.py`), py-spy. The kernel's view (`/proc`) is always added. Every question has a deadline,
every answer a limit.
"""

from __future__ import annotations  # the Python of an image may be old

import glob
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# As in `trainer/debuggable.py`.
SIGNAL, STACKS, POD_UID = 50, "gpuconsole-stacks", "GPUCONSOLE_POD_UID"
ANSWER_S, SIGNAL_S, PY_SPY_S, ALL_S = 5.0, 2.0, 8.0, 20.0
STACK_BYTES, ANSWER_BYTES, RECORDER_ENTRIES, MOST_RANKS, MOST_WORKERS = 1 << 16, 1 << 23, 24, 64, 16
ENTRY_KEYS = (
    *("collective_seq_id", "profiling_name", "state", "retired"),
    *("input_sizes", "input_dtypes", "time_created_ns"),
)
# Variables with the rank and the local rank, of Open MPI, Hydra, Slurm and others.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
    ("RANK", "LOCAL_RANK"),
)


def read(path: str, limit: int = 1 << 16) -> str:
    """Return the start of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def find_processes() -> dict[int, dict[str, Any]]:
    """Return the processes of this container, by pid; in the sandbox, those of this pod."""
    own_cgroup, own_pod = read("/proc/self/cgroup"), os.environ.get(POD_UID)
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        status = dict(re.findall(r"^(\w+):\t(.*)$", read(f"/proc/{pid}/status"), re.MULTILINE))
        env = dict(each.partition("=")[::2] for each in read(f"/proc/{pid}/environ", 1 << 20).split("\0"))
        command = read(f"/proc/{pid}/cmdline").split("\0")[:-1]
        is_ours = read(f"/proc/{pid}/cgroup") == own_cgroup and env.get(POD_UID) == own_pod
        if command and is_ours and pid != os.getpid():
            python = re.search(
                r"python|py-spy|torchrun", os.path.basename(command[0]) + status.get("Name", "")
            )
            rank, is_exact = rank_of(env)
            found[pid] = {
                "pid": pid,
                "parent": int(status.get("PPid", 0)),
                "rank": rank,
                "is_exact": is_exact,
                "is_python": bool(python),
                "command": " ".join(command)[:300],
                "state": status.get("State", ""),
                "wchan": read(f"/proc/{pid}/wchan"),
                "syscall": read(f"/proc/{pid}/syscall").split(" ")[0],
                "caught": int(status.get("SigCgt", "0"), 16),
                "server": env.get("TORCH_WORKER_SERVER_SOCKET", ""),
            }
    return found


def rank_of(env: dict[str, str]) -> tuple[int | None, bool]:
    """Return the rank that the launcher gave a process, and whether it is certainly not the pod's number."""
    is_torchrun = "TORCHELASTIC_RUN_ID" in env and "LOCAL_RANK" in env
    for name, local in LAUNCHERS[-1:] if is_torchrun else LAUNCHERS:
        if env.get(name, "").isdigit() and (name != "SLURM_PROCID" or env.get("SLURM_NTASKS", "1") != "1"):
            return int(env[name]), local in env or name.startswith("OMPI")
    return None, False


def choose_ranks(processes: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one process for each rank: not launchers, nor what a rank started itself."""
    trained = [each for each in processes.values() if root_of(each, processes) == 1 or 1 not in processes]
    exact = [each for each in trained if each["is_exact"]]
    chosen = [each for each in exact or trained if each["is_python"]]
    pids = {each["pid"] for each in chosen}
    first = [each for each in chosen if not pids & ancestors(each, processes)]
    if not first:  # no Python: the programs that started no other
        parents = {each["parent"] for each in trained}
        first = [each for each in exact or trained if each["pid"] not in parents]
    return sorted(first, key=lambda each: (each["rank"] is None, each["rank"], each["pid"]))[:MOST_RANKS]


def ancestors(process: dict[str, Any], processes: dict[int, dict[str, Any]]) -> set[int]:
    """Return the pids of the processes above one."""
    found: set[int] = set()
    while process["parent"] in processes and process["parent"] not in found:
        found.add(process["parent"])
        process = processes[process["parent"]]
    return found


def root_of(process: dict[str, Any], processes: dict[int, dict[str, Any]]) -> int:
    """Return the pid of the topmost process; that of a shell opened by `exec` is not 1."""
    above = ancestors(process, processes)
    return 1 if 1 in above or process["pid"] == 1 else min(above, default=int(process["pid"]))


def find_sockets() -> dict[int, tuple[int, str]]:
    """Return rank and path of each worker server's socket, by pid; root also sees those of other users."""
    pod = os.environ.get(POD_UID)
    base = os.environ.get("TMPDIR", "/tmp") if pod else "/tmp"
    prefix = f"{base}/gpuconsole-{pod or os.uname().nodename}-"
    sockets = {}
    for folder in glob.glob(f"{glob.escape(prefix)}*")[:MOST_RANKS]:
        try:
            found = os.lstat(folder)
            is_private = found.st_mode & 0o170077 == 0o40000
            if not is_private or folder != f"{prefix}{found.st_uid}":
                continue
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # stays open: the paths lead through it
            names = os.listdir(opened)
        except OSError:
            continue
        for each in (re.match(r"(\d{1,9})-(\d{1,9})\.sock$", name) for name in names):
            if each:
                sockets[int(each[1])] = (int(each[2]), f"/proc/self/fd/{opened}/{each[0]}")
    return sockets


def ask_server(path: str, handler: str, method: str = "POST") -> str:
    """Return the body of a worker server's answer.

    Raises:
        OSError: The server does not answer in time, or with an error.
    """
    deadline = time.monotonic() + ANSWER_S
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        head = f"{method} /handler/{handler} HTTP/1.0\r\nHost: pod\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())
        while len(answer) < ANSWER_BYTES and time.monotonic() < deadline:
            chunk = connection.recv(1 << 16)
            if not chunk:
                break
            answer += chunk
    start, _, body = answer.partition(b"\r\n\r\n")
    if start.split(b" ")[1:2] != [b"200"]:
        raise OSError("no answer in time" if not start else start[:60].decode("ascii", "replace"))
    return body.decode("utf-8", "replace")


def recorded(path: str) -> dict[str, Any]:
    """Return the newest collectives of a rank's flight recorder, by process group; empty if it has none."""
    names = json.loads(ask_server(path, "", "GET"))
    for handler in ("dump_nccl_trace_json", "fr_trace_json"):
        if handler in names:
            trace = json.loads(ask_server(path, handler))
            groups: dict[str, Any] = {}
            for each in trace.get("entries") or ():
                if not each.get("is_p2p"):
                    groups.setdefault(" ".join(map(str, each.get("process_group") or ["?"])), []).append(each)
            if groups:
                return {
                    name: [{key: each.get(key) for key in ENTRY_KEYS} for each in entries[-RECORDER_ENTRIES:]]
                    for name, entries in groups.items()
                }
    return {}


def ask_by_signal(process: dict[str, Any]) -> str:
    """Return the stacks that faulthandler writes; no signal is sent without a handler, as it would kill."""
    pid = process["pid"]
    if not process["caught"] >> (SIGNAL - 1) & 1:
        return ""
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        if os.path.islink(path) and os.readlink(path).startswith(f"/memfd:{STACKS} "):
            os.truncate(path, 0)
            os.kill(pid, SIGNAL)
            deadline, size = time.monotonic() + SIGNAL_S, 0
            while time.monotonic() < deadline:
                time.sleep(0.05)
                before, size = size, os.stat(path).st_size
                if size and size == before:
                    return read(path, STACK_BYTES)
            raise OSError("the process did not handle the signal")
    return ""


def ask_py_spy(process: dict[str, Any]) -> str:
    """Return py-spy's JSON; empty if the image has no py-spy."""
    program = shutil.which("py-spy")
    if not program or not process["is_python"]:
        return ""
    words = [program, "dump", "--json", "--pid", str(process["pid"])]
    ran = subprocess.run(words, capture_output=True, timeout=PY_SPY_S)
    if ran.returncode:
        raise OSError(ran.stderr.decode("utf-8", "replace")[-200:].strip())
    return ran.stdout.decode("utf-8", "replace")[: STACK_BYTES * 4]


def inspect(process: dict[str, Any], path: str, children: list[dict[str, Any]]) -> None:
    """Add to a process its `stack`, the `source` of it, the `recorder`, and `failed` sources.

    If it waits for its data loader, the stacks of the `workers` are added: they are its `children`.
    """
    process["failed"] = {}
    sources: dict[str, Callable[[], str]] = {
        "worker server": lambda: ask_server(path, "dump_traceback") if path else "",
        "faulthandler": lambda: ask_by_signal(process),
        "py-spy": lambda: ask_py_spy(process),
    }
    for name, ask in sources.items():
        try:
            stack = ask()
            if stack.strip():
                process.update(
                    stack=stack[: STACK_BYTES * 4], source=name, lines=source_lines(process, stack)
                )
                break
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            process["failed"][name] = str(error)[:200]
    if "dataloader.py" in process.get("stack", ""):
        process["workers"] = []
        for child in children[:MOST_WORKERS]:
            with suppress(OSError):
                process["workers"].append(ask_by_signal(child)[:STACK_BYTES])
    if path and "worker server" not in process["failed"]:
        try:
            process["recorder"] = recorded(path)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            process["failed"]["flight recorder"] = str(error)[:200]


def source_lines(process: dict[str, Any], stack: str) -> dict[str, str]:
    """Return the code at the user's lines of a stack, by `file:line`."""
    found: dict[str, str] = {}
    for name, number in re.findall(r'File "(/?[^"<>]{1,400})", line (\d{1,7})', stack):
        path = os.path.join(f"/proc/{process['pid']}/cwd", name)
        is_library = "/site-packages/" in name or "/dist-packages/" in name or "/lib/python" in name
        if not is_library and len(found) < 20 and os.path.isfile(path):
            lines = read(path, 1 << 20).splitlines()[int(number) - 1 : int(number)]
            found.update({f"{name}:{number}": line.strip()[:160] for line in lines})
    return found


def main() -> None:
    """Ask all ranks at once, and print what came back before the deadline."""
    sockets, deadline = find_sockets(), time.monotonic() + ALL_S
    processes = find_processes()
    for pid, (rank, _) in sockets.items():
        if pid in processes:
            processes[pid].update(rank=rank, is_exact=True)
    ranks = choose_ranks(processes)
    threads = []
    for process in ranks:
        children = [each for each in processes.values() if each["parent"] == process["pid"]]
        path = sockets.get(process["pid"], (0, process["server"]))[1]
        threads.append(threading.Thread(target=inspect, args=(process, path, children), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    print(json.dumps({"now_ns": time.time_ns(), "processes": [dict(each) for each in ranks]}), flush=True)
    os._exit(0)  # not waiting for what did not answer


if __name__ == "__main__":
    main()
