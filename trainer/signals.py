"""Being asked to stop, by SIGTERM or SIGINT, from the first line of a process to its last."""

import ctypes
import os
import signal
import sys
import threading
from types import FrameType

LAUNCHER_PID_VARIABLE = "TRAINER_LAUNCHER_PID"
"""Variable in which a launcher tells its ranks which process it is."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Those that ask to stop."""

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """Notes that somebody asked this process to stop, so that it can finish its step first."""

    signal = 0
    """The number of the signal that came; 0 while none has."""

    def catch_signals(self) -> None:
        """Note SIGTERM and SIGINT from now on, instead of dying of them."""
        for number in SIGNALS:
            signal.signal(number, self._note)

    def exit_on_signal(self, when: str) -> None:
        """Until `catch_signals` is called, end the process at the first signal, with 128 + its number.

        `when` completes "Stopped by SIGTERM". A thread does it: torch waits for other
        ranks in C++, where Python's handlers do not run. Without any handler the first
        process of a container would not end at all.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        handler = self._note_early
        for number in SIGNALS:
            signal.signal(number, handler)

        def leave() -> None:
            while True:
                (number,) = os.read(reader, 1)
                if signal.getsignal(number) == handler:
                    words = f"Stopped by {signal.Signals(number).name} {when}.\n"
                    os.write(sys.stdout.fileno(), words.encode())
                    os._exit(128 + number)

        threading.Thread(target=leave, name="start-up", daemon=True).start()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number

    def _note_early(self, number: int, frame: FrameType | None) -> None:
        self._note(number, frame)


def stop_when_launcher_dies() -> None:
    """Have the kernel send SIGTERM when the launcher of this process dies, whatever it dies of (Linux)."""
    launcher = os.environ.pop(LAUNCHER_PID_VARIABLE, "")
    if launcher and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(launcher):
            signal.raise_signal(signal.SIGTERM)
