"""What the fields of the new-job form offer: names that the cluster has, and templates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from k8s.client.client import Client
from k8s.kinds import CREATABLE
from k8s.nodes.gpu_links import fetch_known_links
from k8s.snapshot import ClusterSnapshot, NodeRow
from k8s.topology.links import LinkMatrix
from tui.feeds.form_choices import fetch_all, fetch_node_labels, snapshot_choices, volume_choices
from tui.jobs.new_job.fields import KIND
from tui.jobs.new_job.form_state import FormState
from tui.jobs.new_job.job_templates import JobTemplate, own_templates, packaged_templates
from tui.widgets.form.job_fields import JobFields

Place = tuple[str, str, str, str]
"""A volume and what is looked for on it: namespace, claim, mount path, folder of MNIST."""


class FormOffers:
    """Lists what there is, and hands it to the fields; typing goes on meanwhile."""

    def __init__(
        self, client: Client, templates_folder: Path | None, links: dict[str, LinkMatrix] | None = None
    ) -> None:
        """Ask `client`; the user's own templates are in `templates_folder`, None for nowhere."""
        self._client = client
        self.links = {} if links is None else links
        """How the GPUs of each node are linked, as far as anybody has looked."""
        self._has_links = False
        self.templates_folder = templates_folder
        """Where the user's own templates are."""
        self._has_node_labels = False
        self._place: Place | None = None
        self._nodes: Sequence[NodeRow] | None = None
        self.claims: Sequence[str] | None = None
        """The volume claims of the namespace; None while they are not known."""
        self.listed = asyncio.Event()
        """Set once it was tried to list what the namespace has."""
        self.namespace = ""
        """The namespace that was asked."""
        self.templates: Mapping[str, JobTemplate] = {}
        """By name; one's own before those of the package."""

    @property
    def default_claim(self) -> str:
        """Return the volume claim that is filled in; empty where there is none of its name."""
        return "workspace" if "workspace" in (self.claims or ()) else ""

    async def load(self, fields: JobFields, namespace: str, snapshot: ClusterSnapshot) -> None:
        """List what fields can name in a namespace; where that may not be, the field says so."""
        self.claims, self.namespace = None, namespace
        self.listed.clear()
        await fields.set_choices(KIND.key, kind_choices(snapshot))
        found, _ = await asyncio.gather(fetch_all(self._client, namespace), self._load_links(snapshot))
        for key, choices in found.items():
            fields.offer(key, choices.options, choices.problem)
        volumes = volume_choices(found["claim"])
        fields.offer("more_volumes", volumes.options, volumes.problem)
        if not found["claim"].problem:
            self.claims = [name for name, _ in found["claim"].options]
        self.listed.set()

    async def _load_links(self, snapshot: ClusterSnapshot) -> None:
        """Read how GPUs are linked where Alibaba Cloud's component has written it down."""
        models = {node.name: node.gpu_model for node in snapshot.nodes if node.gpus_total > 1}
        if models and not self._has_links:
            self._has_links = True
            for node, matrix in (await fetch_known_links(self._client, models)).items():
                self.links.setdefault(node, matrix)

    async def load_node_labels(self, fields: JobFields) -> None:
        """List the labels of nodes, which may be many: once somebody wants to select by them."""
        if not self._has_node_labels:
            self._has_node_labels = True
            choices = await fetch_node_labels(self._client)
            fields.offer("node_selector", choices.options, choices.problem)

    async def load_templates(self, fields: JobFields) -> Sequence[str]:
        """Read the templates, and return a sentence for each file that is none."""
        found = await asyncio.to_thread(packaged_templates)
        problems: Sequence[str] = ()
        if self.templates_folder is not None:
            own, problems = await asyncio.to_thread(own_templates, self.templates_folder)
            found = [*own, *found]
        self.templates = {each.name: each for each in reversed(found)}
        choices = [(each.name, each.title) for each in found if self.templates[each.name] is each]
        await fields.set_choices("template", (("", "none"), *choices))
        return problems

    def place_to_look_at(self, state: FormState) -> Place | None:
        """Return which volume the form means, if that is another than before; it is not known then."""
        values = state.values
        place = (values["namespace"], values["claim"], values["mount_path"], state.result.mnist)
        if place == self._place:
            return None
        self._place = place
        state.set_volume(None)
        return place

    def offer_known(self, fields: JobFields, snapshot: ClusterSnapshot) -> None:
        """Offer what the snapshot tells: GPU resources and nodes, with what is free."""
        if snapshot.nodes is self._nodes:
            return
        self._nodes = snapshot.nodes
        for key, choices in snapshot_choices(snapshot).items():
            fields.offer(key, choices.options, choices.problem)


def kind_choices(snapshot: ClusterSnapshot) -> list[tuple[str, str]]:
    """Return the kinds of jobs to choose from; those that the server does not know say so."""
    served = snapshot.kinds or [each.resource.kind for each in CREATABLE]
    unknown = {each.title for each in CREATABLE if each.resource.kind not in served}
    mark = "  not served here"
    return [(title, words + mark * (title in unknown)) for title, words in KIND.choices]
