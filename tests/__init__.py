"""What must hold. The rooms are those of the code; `support` and `scripted` are what tests are made of."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
FIXTURES = ROOT / "tests" / "fixtures"
"""Objects recorded from real clusters."""
GOLDEN = ROOT / "tests" / "golden"
"""What was looked at and accepted."""
