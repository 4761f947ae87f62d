"""A step of the packaged trainer beside the plain PyTorch loop: same model, device, precision and batch."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.bench.figures import Figure

BATCH, STEPS = 64, 300
_PLAIN = f"""
import time, torch
from trainer.ddp.model import make_model
torch.manual_seed(0)
model = make_model("cnn")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = torch.randn({BATCH * 8}, 1, 28, 28), torch.randint(0, 10, ({BATCH * 8},))
loss_of = torch.nn.CrossEntropyLoss()
for step in range({STEPS} + 20):
    if step == 20:
        began = time.perf_counter()
    at = (step % 8) * {BATCH}
    optimizer.zero_grad()
    loss = loss_of(model(images[at:at + {BATCH}]), labels[at:at + {BATCH}])
    loss.backward()
    optimizer.step()
    loss.item()
print("images/s", {BATCH} * {STEPS} / (time.perf_counter() - began))
"""


def measure() -> Iterator[Figure]:
    """Run both alone, one process each."""
    plain = subprocess.run([sys.executable, "-P", "-c", _PLAIN], check=True, capture_output=True, text=True)
    peer_s = BATCH / float(plain.stdout.split()[-1])
    with tempfile.TemporaryDirectory() as folder:
        words = ["--epochs", "2", "--batch-size", str(BATCH)]
        words += ["--log-dir", f"{folder}/logs", "--checkpoint-dir", f"{folder}/checkpoints"]
        command = [sys.executable, "-P", "-m", "trainer.train_ddp", *words]
        ours = subprocess.run(command, check=True, capture_output=True, text=True)
    rates = [float(rate) for rate in re.findall(r"([\d.]+) images/s", ours.stdout)]
    middle = sorted(rates)[len(rates) // 2]
    yield Figure(f"trainer step, {BATCH} images", BATCH / middle, "plain PyTorch loop", peer_s, ">= 1.0x")
