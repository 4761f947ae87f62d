"""Version and user name, as the server reports them.

A server of something else, or a login page, may stand at the address.
"""

from __future__ import annotations

from typing import Any

from k8s.client.client import Client
from k8s.client.transport import without_credentials
from k8s.errors import KubeError, NotFound, NotKubernetes
from k8s.models.resources import Resource

# Anyone may read it, and it costs the server nothing.
VERSION = "/version"


async def fetch_username(client: Client) -> str:
    """Fetch the API's name for the user and store it in the client's config.

    If the API does not say, it is `ClusterConfig.known_username`.

    Source: SelfSubjectReview, since Kubernetes 1.26; v1 since 1.28.
    """
    config = client.config
    for version in () if config.username else ("v1", "v1beta1", "v1alpha1"):
        resource = Resource(
            "authentication.k8s.io", version, "selfsubjectreviews", "SelfSubjectReview", is_namespaced=False
        )
        review = {"apiVersion": resource.api_version, "kind": resource.kind}
        try:
            status = (await client.create(resource, review, is_urgent=False)).get("status")
        except NotFound:
            continue
        except KubeError:
            break
        user = status.get("userInfo") if isinstance(status, dict) else None
        config.username = str(user.get("username") or "") if isinstance(user, dict) else ""
        break
    config.username = config.known_username
    return config.username


async def fetch_version(client: Client) -> dict[str, Any]:
    """Fetch the server's version, as in `gitVersion` and `major`.

    Raises:
        NotKubernetes: Something other than a Kubernetes API answered.
        KubeError: The server did not answer, or refused.
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
        "This address answers, but it is not a Kubernetes API.",
        f"{without_credentials(client.config.host)}{VERSION} reports no Kubernetes version.",
        "Check the server's address in the kubeconfig.",
    )
