"""How far a job is, where one of its lines says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.text.progress import progress_in


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "epoch 1/3 step 120/564 loss 0.1234 lr 9.8e-04 412 images/s eta 1m12s",
            "epoch 1/3 step 120/564 ETA 1m12s",
        ),
        (" 61%|██████    | 122/200 [01:02<00:40,  1.93it/s]", "61% ETA 00:40"),
        ("Epoch: [2/90] Step [10/100] loss 5 ETA: 1:02:03", "epoch 2/90 step 10/100 ETA 1:02:03"),
        ("[rank0]: iteration 10/ 500 | lm loss: 9.1", "iteration 10/500"),
        ("gpu 98% busy", ""),
        ("loss 1.87", ""),
        ("step 5 took 3 ms", ""),
        ("timestep 3/4 beta 0.5", ""),
        ("", ""),
    ],
)
def test_only_what_a_line_says_is_told(line: str, words: str) -> None:
    assert progress_in(line) == words


@given(st.text())
def test_any_line_can_be_read(line: str) -> None:
    assert len(progress_in(line)) < 200
