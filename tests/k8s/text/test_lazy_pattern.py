"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import gc
import re
from importlib import import_module

import pytest

from k8s.text import lazy_pattern as module
from k8s.text.lazy_pattern import lazy_pattern
from tests import ROOT

BROKEN = "("


def test_a_lazy_pattern_is_compiled_when_it_is_used() -> None:
    broken, whole = lazy_pattern(BROKEN), lazy_pattern(rb"LOSS (\d)", re.IGNORECASE)
    with pytest.raises(re.error, match="unterminated"):
        broken.search("")
    for _ in range(2):
        found = whole.search(b"loss 3")
        assert found is not None and found[1] == b"3"


def test_every_lazy_pattern_of_the_packages_compiles() -> None:
    paths = [path for name in ("k8s", "tui") for path in (ROOT / name).rglob("*.py")]
    users = [path for path in paths if "import lazy_pattern\n" in path.read_text()]
    modules = [import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in users]
    gc.unfreeze()  # a command that ran in this process has hidden them
    # Not isinstance: it would ask all other objects for their class, and some of torch warn then.
    lazy = [each for each in gc.get_objects() if type(each) is module._LazyPattern]
    assert len(lazy) > len(modules) > 5
    for each in lazy:
        if each._form[0] != BROKEN:
            re.compile(*each._form)
