"""Settings of the command line that replace those of the kubeconfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConfigOverrides:
    """Empty values leave the kubeconfig's."""

    server: str = ""
    """Address of the API server; the certificate authority stays that of the kubeconfig."""
    token: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    request_s: float = 0.0
    """Longest time for an answer that is no stream; 0 for the default."""

    def user(self, user: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a user entry of a kubeconfig with these settings."""
        found = {"token": self.token} if self.token else dict(user)
        # As kubectl, impersonation of the kubeconfig does not mix with that of the command line.
        impersonation = {"as", "as-uid", "as-groups", "as-user-extra"}
        if self.as_user or self.as_groups:
            found = {name: value for name, value in found.items() if name not in impersonation}
            found |= {"as": self.as_user, "as-groups": list(self.as_groups)}
        return found
