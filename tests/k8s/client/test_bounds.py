"""Limits on answers, lists and lines that never end or hardly begin."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from aiohttp import web

from k8s.client.client import Client
from k8s.client.transport import MOST_ANSWER_BYTES, MOST_LINE_BYTES
from k8s.cluster.mirror import Mirror
from k8s.errors import KubeError, ServerFailed, Unreachable
from k8s.models import Meta, Pod, Reader
from k8s.models.resources import PODS
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, Stream, page

ALL_PODS = "/api/v1/pods"
BOMB = gzip.compress(bytes(MOST_ANSWER_BYTES + (1 << 20)), 1)
NUMBERS = count(1)
Request = Callable[[Client], Awaitable[object]]


class Trickle:
    """A body that sends a byte now and then, for ever."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not closing.is_set():
            await response.write(b" ")
            await asyncio.sleep(0.01)
        return response


async def list_all(client: Client) -> object:
    return await client.list(PODS)


async def mirror_all(client: Client) -> object:
    mirror: Mirror[Pod] = Mirror(client, PODS, ("",), Reader(Pod), _meta, lambda: None)
    await mirror.list_once()
    return None


async def watch_all(client: Client) -> object:
    return [line async for line in client.watch(PODS, version="1")]


def _meta(pod: Pod) -> Meta:
    return pod.metadata


def next_page(_: Asked) -> Answer:
    return page([], following=str(next(NUMBERS)))


@pytest.mark.parametrize(
    ("request_", "reply", "error", "words"),
    [
        (list_all, Answer(BOMB, headers={"Content-Encoding": "gzip"}), ServerFailed, "over 256 MiB"),
        (mirror_all, Answer(BOMB, headers={"Content-Encoding": "gzip"}), ServerFailed, "over 256 MiB"),
        (list_all, page([], following="same"), ServerFailed, "Page 3 of its list is page 2 again."),
        (mirror_all, page([], following="same"), ServerFailed, "Page 3 of its list is page 2 again."),
        (list_all, Compute(next_page), ServerFailed, "does not end after 4000 pages"),
        (list_all, Trickle(), Unreachable, "did not answer in time"),
        (watch_all, Stream(bytes(MOST_LINE_BYTES + 1)).end(), ServerFailed, "answer is over 64 MiB"),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
async def test_an_answer_without_end_is_given_up_with_a_reason(
    request_: Request, reply: Reply, error: type[KubeError], words: str
) -> None:
    is_slow = isinstance(reply, Trickle)
    async with ScriptedCluster() as cluster, cluster.client(request_s=0.05 if is_slow else 30.0) as client:
        cluster.say(ALL_PODS, reply)
        cluster.say(ALL_PODS, reply, watch=True)
        with pytest.raises(error) as caught:
            await request_(client)
    assert words in caught.value.why
    assert "pods" in caught.value.what and caught.value.hint
