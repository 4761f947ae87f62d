"""How a process ends that is asked to stop before it handles stop requests itself."""

import signal
import subprocess
import sys

from tests import ROOT

LOGS_WITHOUT_END = """
import itertools
from trainer.messages import log
from trainer.signals import StopRequest

StopRequest().exit_on_signal("at once")
for number in itertools.count():
    log(f"line {number}")
"""


def test_the_message_of_a_stopped_process_is_its_last_line() -> None:
    for _attempt in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", LOGS_WITHOUT_END], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            last = process.communicate(timeout=60)[0].splitlines()[-1]
        assert (last, process.returncode) == ("Stopped by SIGTERM at once.", 128 + signal.SIGTERM)
