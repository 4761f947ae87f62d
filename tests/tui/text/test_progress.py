"""Progress of a job, from its lines."""

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
        ("Train Epoch: 1 [640/60000 (1%)]\tloss=2.2135", "epoch 1 640/60000"),
        ("Train Epoch: 3 [57600/60000 (96%)]\tLoss: 0.5", "epoch 3 57600/60000"),
        ("Epoch: [0][ 10/391]\tTime  0.2 ( 0.3)\tLoss 6.9e+00 (7.0e+00)", "epoch 0 10/391"),
        ("epoch 1/10, batch   500/1500 with loss: 0.5123", "epoch 1/10 batch 500/1500"),
        ("epoch 2/10 with val loss: 0.0743, val accuracy: 0.9772", "epoch 2/10"),
        ("Iter #3: 205.5 img/sec per GPU", "iter #3"),
        ("[1,0]<stdout>:Iter #0: 205.5 img/sec per GPU", "iter #0"),
        ("{'loss': 0.5, 'learning_rate': 4.9e-05, 'epoch': 0.13}", "epoch 0.13"),
        ("{'loss': '0.5', 'epoch': '2.5'}", "epoch 2.5"),
        ("Epoch 3:  42%|████▏     | 420/1000 [00:42<00:58, 10.0it/s, loss=0.512]", "epoch 3 42% ETA 00:58"),
        ("epoch: done", ""),
        ("gpu 98% busy", ""),
        ("loss 1.87", ""),
        ("step 5 took 3 ms", ""),
        ("timestep 3/4 beta 0.5", ""),
        ("", ""),
    ],
)
def test_progress_is_extracted_only_from_lines_that_report_it(line: str, words: str) -> None:
    assert progress_in(line) == words


@given(st.text())
def test_any_line_can_be_parsed_for_progress(line: str) -> None:
    assert len(progress_in(line)) < 200
