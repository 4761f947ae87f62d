"""Rank prefixes of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.logs.prefixes import RULES, RankReader


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_each_rule_finds_the_rank_of_its_own_example(rule: object) -> None:
    example = rule.example.encode()  # type: ignore[attr-defined]
    owner = RankReader((0, 1, 2, 3), prints_all_ranks=True).owner(example)
    assert owner.rank == 3


def test_prefixes_of_a_pod_with_ranks_4_to_7() -> None:
    cases: list[tuple[bytes, int, bool, bytes | None]] = [
        (b"[rank5]: loss 1.8", 5, True, b"loss 1.8"),
        (b"[rank5]:[E514 10:00:00.1 ProcessGroupNCCL.cpp:9] x", 5, True, None),
        (b"[rank5]:[titan] x", 5, False, b"[titan] x"),
        (b"[rank1]:[titan] x", 5, False, b"[titan] x"),
        (b"[default1]:  indented", 5, False, b"  indented"),
        (b"[1,7]<stderr>:Traceback", 7, True, b"Traceback"),
        (b"[prterun-h-1@1,7][h:12]<stdout>:hi", 7, True, b"hi"),
        (b"[1,7]<stdout>: what Open MPI 5 writes", 7, True, b"what Open MPI 5 writes"),
        (b"[1,7]<stderr>:   indented", 7, True, b"   indented"),
        (b"[Sun Nov 22 11:27:33 2026][1,7]<stdout>: hi", 7, True, b"hi"),
        (b"[rank: 6] Seed set", 6, True, b"Seed set"),
        (b"[RANK 6] Seed set", 6, True, b"Seed set"),
        (b"rank=6 step=1", 6, True, b"rank=6 step=1"),
    ]
    for line, rank, is_proven, text in cases:
        owner = RankReader((4, 5, 6, 7)).owner(line)
        assert (owner.rank, owner.is_proven) == (rank, is_proven)
        if text is not None:
            assert line[owner.prefix_bytes :] == text


def test_what_only_looks_like_a_prefix_stays_with_the_pod() -> None:
    cases: list[bytes] = [
        b"3: a numbered list",
        b"[3] a footnote",
        b"h:12:34 [3] NCCL INFO x",
        b"[epoch3]: done",
        b"[INFO1]: done",
        b"[default9]:no such place",
        b"ranking=3 of 4",
        b"rank=best",
        b" [rank3]: not at the start",
        b"[rank-1]: x",
        b"[rank99999999999999999999]: x",
        b"",
        b"[",
        b"Starting rank 3",
        "[rank\u0663]: arabic digit".encode(),
    ]
    for line in cases:
        assert RankReader((0, 1, 2, 3)).owner(line) == (None, False, 0)


def test_a_number_in_brackets_is_a_rank_only_in_a_launcher() -> None:
    assert RankReader(prints_all_ranks=True).owner(b"[3] hi") == (3, True, 4)


def test_the_only_rank_of_a_pod_wrote_what_bears_no_mark() -> None:
    assert RankReader((9,)).owner(b"hello") == (9, False, 0)


def test_a_launcher_speaks_for_itself_even_if_it_has_one_rank() -> None:
    assert RankReader((0,), prints_all_ranks=True).owner(b"hello").rank is None


@given(line=st.binary(max_size=400), ranks=st.lists(st.integers(0, 99), max_size=8), launcher=st.booleans())
def test_any_bytes_have_at_most_one_owner_and_lose_nothing_but_a_prefix(
    line: bytes, ranks: list[int], launcher: bool
) -> None:
    owner = RankReader(ranks, prints_all_ranks=launcher).owner(line)
    assert 0 <= owner.prefix_bytes <= len(line)
    assert owner.rank is None or 0 <= owner.rank < 1_000_000
    assert owner.rank is not None or owner.prefix_bytes == 0


@given(rank=st.integers(0, 99_999), text=st.binary(max_size=200).filter(lambda text: b"\n" not in text))
def test_what_our_own_jobs_write_is_always_proven(rank: int, text: bytes) -> None:
    line = b"[rank%d]: %s" % (rank, text)
    owner = RankReader((0, 1)).owner(line)
    assert (owner.rank, owner.is_proven, line[owner.prefix_bytes :]) == (rank, True, text)
