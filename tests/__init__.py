"""Tests, in packages named like those of the code; `support` and `scripted` hold their helpers."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
FIXTURES = ROOT / "tests" / "fixtures"
"""Objects recorded from real clusters."""
GOLDEN = ROOT / "tests" / "golden"
"""Reviewed outputs that tests compare with."""
