from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from k8s.telemetry.prometheus_text import MAX_LINE_BYTES, Sample, known, read_samples

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)
FLOATS = st.floats(allow_nan=False)


def line(name: str, labels: dict[str, str], value: float) -> str:
    """Write a sample as an exporter does."""
    escaped = {
        key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, text in labels.items()
    }
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inside}}} {value!r}"


@given(st.lists(st.tuples(NAMES, LABELS, FLOATS), max_size=6))
def test_what_an_exporter_writes_is_read_as_it_was(written: list[tuple[str, dict[str, str], float]]) -> None:
    text = "\n".join(["# HELP a b", *(line(*each) for each in written), ""]).encode()
    assert list(read_samples(text)) == [Sample(*each) for each in written]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(text: bytes) -> None:
    for sample in read_samples(text):
        assert isinstance(sample.value, float)


@given(st.data())
def test_a_text_that_ends_anywhere_or_is_broken_anywhere_is_read_without_an_error(
    data: st.DataObject,
) -> None:
    text = bytearray(b'm{gpu="0",UUID="GPU-1",pod="a\\"b"} 12 1700000000\nn 3\n')
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    list(read_samples(bytes(text[: data.draw(st.integers(0, len(text)))])))


def test_the_forms_that_exporters_use_are_all_read() -> None:
    text = b"""
# TYPE a gauge
a 1
a{} 2
a{x="1",} 3
a { x = "1" , y="2" } 4e2
a{x="1"} 5 1700000000000
a{x="1"} 6 # {trace="1"} 0.5
a{x="a\\\\b\\"c\\nd"} +Inf
\ta\tNaN
"""
    samples = list(read_samples(text))
    assert [sample.value for sample in samples[:7]] == [1, 2, 3, 400, 5, 6, math.inf]
    assert samples[3].labels == {"x": "1", "y": "2"}
    assert samples[6].labels == {"x": 'a\\b"c\nd'}
    assert math.isnan(samples[7].value)


def test_lines_that_make_no_sense_are_left_out_and_hide_no_others() -> None:
    text = b'a{x="1 2\nb{x=1} 2\nc{x="1"}\nd{x="1"} two\ne{x="1" 3\n9f 1\n<html>\nok 1\n\xff\xfe 1\n'
    assert [sample.name for sample in read_samples(text)] == ["ok"]


def test_a_line_of_a_megabyte_is_passed_over_at_once() -> None:
    text = b'a{x="' + b"\\" * MAX_LINE_BYTES * 64 + b"\nok 1\n"
    assert [sample.name for sample in read_samples(text)] == ["ok"]


def test_only_what_is_wanted_is_read() -> None:
    assert [sample.name for sample in read_samples(b"a 1\nb 2\nab 3\n", ["b"])] == ["b"]


def test_what_stands_for_no_number_is_not_known() -> None:
    blanks = [2147483632, 2147483634, 2.0**47, 140737488355330.0, 9223372036854775792, 9223372036854775794]
    assert [known(float(blank)) for blank in blanks] == [None] * len(blanks)
    assert [known(value) for value in (math.nan, math.inf, -1.0)] == [None, None, None]
    assert [known(value) for value in (0.0, 98.0, 183920441922.0)] == [0.0, 98.0, 183920441922.0]
