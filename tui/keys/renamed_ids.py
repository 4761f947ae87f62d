"""Ids that keys had before: a keys.yaml that names them still works, with a notice."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED_IDS: Mapping[str, str] = {
    "app.retry": "app.refresh",
    "app.suspend": "app.suspend_process",
    "jobs.open": "jobs.open_job",
    "jobs.previous": "jobs.previous_logs",
    "jobs.events": "jobs.job_events",
    "jobs.forward": "jobs.port_forward",
    "jobs.hold": "jobs.suspend",
    "nodes.holders": "nodes.node_gpus",
    "nodes.owner": "nodes.largest_job",
    "holders.open": "node_gpus.open_job",
    "holders.logs": "node_gpus.logs",
    "holders.why": "node_gpus.why",
    "holders.sort_since": "node_gpus.sort_since",
    "events.open": "events.open_event",
    "events.whole": "events.whole_event",
    "volumes.open": "volumes.volume",
    "namespaces.open": "namespaces.switch_namespace",
    "contexts.open": "contexts.switch_context",
    "job.events": "job.only_events",
    "job.previous": "job.previous_logs",
    "job.forward": "job.port_forward",
    "job.hold": "job.suspend",
    "job.pane_before": "job.previous_pane",
    "logs.next": "logs.next_rank",
    "logs.before": "logs.previous_rank",
    "curves.before": "curves.previous",
    "new.section_before": "new.previous_section",
    "new.check": "new.dry_run",
    "new.keep": "new.save_draft",
    "table.choose": "table.open",
    "table.pick_next": "table.next_column",
    "table.pick_before": "table.previous_column",
    "card.close": "detail.close",
    "card.down": "detail.down",
    "card.up": "detail.up",
    "dialog.before": "dialog.previous",
}
"""What an id was called, and what it is called now."""
