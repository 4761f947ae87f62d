"""All that a submission could have made in a namespace, and nothing that the cluster itself puts there."""

from __future__ import annotations

import asyncio

from k8s.client.client import Client
from k8s.kinds import CREATABLE
from k8s.models.resources import CLAIMS, CONFIG_MAPS, DEPLOYMENTS, SECRETS, SERVICES

SERVED = tuple(kind for kind in CREATABLE if kind.title in ("PyTorchJob", "MPIJob", "TrainJob", "Job"))
"""The real cluster has these."""
_MADE = (*(kind.resource for kind in SERVED), CONFIG_MAPS, SECRETS, SERVICES, DEPLOYMENTS, CLAIMS)
_OF_EVERY_NAMESPACE = ("kube-root-ca.crt", "default-token-")


async def made_objects(client: Client) -> set[str]:
    """Return what there is in the client's namespace: `configmaps/bert-code`."""
    found = await asyncio.gather(*(client.list(each, client.config.namespace) for each in _MADE))
    return {
        f"{resource.plural}/{obj['metadata']['name']}"
        for resource, objects in zip(_MADE, found, strict=True)
        for obj in objects
        if not obj["metadata"]["name"].startswith(_OF_EVERY_NAMESPACE)
    }
