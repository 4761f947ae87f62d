"""Requests to stop by SIGTERM, SIGINT or SIGHUP, handled from the first line of a process to its last."""

import ctypes
import os
import signal
import sys
import threading
from types import FrameType

# In it, a launcher gives its ranks its own pid.
LAUNCHER_PID_VARIABLE = "TRAINER_LAUNCHER_PID"

# Without SIGHUP under nohup, which ignores it.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    *(() if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)),
)

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """A stop signal, recorded so that the process can finish its step first."""

    signal = 0  # number of the signal; 0 before it

    def catch_signals(self) -> None:
        """Record the `SIGNALS` from now on, instead of exiting."""
        for number in SIGNALS:
            signal.signal(number, self._record)

    def exit_on_signal(self, when: str) -> None:
        """Exit with "Stopped by SIGTERM `when`", status 128 + its number, until `catch_signals` is called."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        handler = self._record_early
        for number in SIGNALS:
            signal.signal(number, handler)

        def leave() -> None:
            while True:
                (number,) = os.read(reader, 1)
                if signal.getsignal(number) == handler:
                    # The main thread may still print; the message stays the last line.
                    stdout = os.dup(sys.stdout.fileno())
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                    signal.pthread_kill(threading.main_thread().ident or 0, number)
                    os.read(reader, 1)  # a write that waited for its reader was interrupted
                    os.write(stdout, f"Stopped by {signal.Signals(number).name} {when}.\n".encode())
                    os._exit(128 + number)

        threading.Thread(target=leave, name="start-up", daemon=True).start()

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number

    def _record_early(self, number: int, frame: FrameType | None) -> None:
        self._record(number, frame)


def stop_when_launcher_dies() -> None:
    """Have the kernel send SIGTERM when the launcher of this process dies for any reason (Linux)."""
    launcher = os.environ.pop(LAUNCHER_PID_VARIABLE, "")
    if launcher and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(launcher):
            signal.raise_signal(signal.SIGTERM)
