"""Asks a server what it is: a page, or a server of something else, may stand at its address."""

from __future__ import annotations

from typing import Any

from k8s.client.client import Client
from k8s.client.transport import without_credentials
from k8s.errors import KubeError, NotKubernetes

VERSION = "/version"
"""Everybody may read it, and a server has it at hand."""


async def fetch_version(client: Client) -> dict[str, Any]:
    """Return what the server says of itself; `gitVersion` is its version.

    Raises:
        NotKubernetes: It is no Kubernetes API that answers.
        KubeError: It does not say.
    """
    try:
        answer = await client.get_json(VERSION, doing="ask for the server's version")
    except KubeError as error:
        if not error.is_foreign:
            raise
        answer = {}
    if answer.get("gitVersion") or answer.get("major"):
        return answer
    raise NotKubernetes(
        "This address answers, but is no Kubernetes API.",
        f"{without_credentials(client.config.host)}{VERSION} tells no version of Kubernetes.",
        "Check the server's address in the kubeconfig.",
    )
