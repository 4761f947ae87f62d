"""Generated JSON values, objects, and bodies with the field names of real objects."""

from __future__ import annotations

from hypothesis import strategies as st

from k8s.sandbox.api.admission.validation import CHECKS

words = st.text("ab", min_size=1, max_size=2)
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(words, anything, max_size=4)
fields = st.sampled_from(sorted({*CHECKS, "status", "*"}))
near_objects = st.recursive(
    plain | st.sampled_from(["Always", "1Gi", "-1", "a", "a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=5),
    max_leaves=40,
)
