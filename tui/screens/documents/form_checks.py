"""What is known for and against the job in the form: by rule, by the snapshot, and as the cluster says."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

from k8s.client.client import Client
from k8s.client.rate_limiter import background_requests
from k8s.job_spec import JobSpec
from k8s.jobs.create import job_objects
from k8s.preflight import Finding, check_against_cluster, check_statically
from k8s.snapshot import ClusterSnapshot
from tui.jobs.new_job.form_spec import FormResult, field_key
from tui.jobs.new_job.form_state import FormState
from tui.jobs.new_job.preflight import PreflightLine, line_of, preflight
from tui.screens.documents.form_companions import FormCompanions
from tui.screens.documents.form_offers import FormOffers
from tui.screens.documents.form_submission import PassedDryRun


class CheckTimes(NamedTuple):
    """How often the cluster is asked."""

    after_s: float = 0.6
    """Between the last change of the form and the question."""
    holds_s: float = 30.0
    """So long the same is not asked again."""


CHECK_TIMES = CheckTimes()
"""For a form that somebody fills in."""


class _Answer(NamedTuple):
    """What the cluster had to say of one job."""

    kind: str
    spec: JobSpec
    findings: Sequence[Finding]
    at_s: float


class FormChecks:
    """Finds what would go wrong with the job as it is now; what was found of another one is marked as old."""

    def __init__(
        self,
        client: Client,
        state: FormState,
        offers: FormOffers,
        companions: FormCompanions,
        times: CheckTimes,
    ) -> None:
        """Check the job of `state`, once it stays as it is."""
        self._client = client
        self._state = state
        self._offers = offers
        self._companions = companions
        self._times = times
        self._answers: list[_Answer] = []
        self._statically: tuple[FormResult | None, Sequence[Finding]] = (None, ())
        self.passed: PassedDryRun | None = None
        """The last dry run, if the server said yes to it."""

    @property
    def is_old(self) -> bool:
        """Whether something was found long ago."""
        if self._state.result.problems or not self._answers:
            return False
        return bool(self._answers[-1].findings) and not self._holds(self._answers[-1])

    async def wait(self) -> None:
        """Wait until the form has been as it is for a moment, if nothing cancels that."""
        await asyncio.sleep(self._times.after_s)

    async def ask(self) -> None:
        """Ask the cluster of the job as it is, unless it has just said."""
        result = self._state.result
        answer = self._answer_to(result)
        if result.problems or (answer is not None and self._holds(answer)):
            return
        kind, spec = result.kind, result.spec
        objects = job_objects(kind, spec, self._companions.files(spec), is_optional_too=False)
        with background_requests():
            found = await check_against_cluster(self._client, kind, spec, objects)
        others = [each for each in self._answers if each is not answer and self._holds(each)]
        self._answers = [*others, _Answer(kind.title, spec, tuple(found), time.monotonic())]

    def lines(self, snapshot: ClusterSnapshot) -> list[PreflightLine]:
        """Return all that is to be said: of the dry run that was asked for, then errors, then the rest."""
        state, offers, result = self._state, self._offers, self._state.result
        found = [*self._by_rule(), *(self._of_cluster() if self._is_current else ())]
        known = (offers.claims, offers.namespace, state.earlier, state.volume, offers.links)
        lines = [
            line
            for line in preflight(result, snapshot, *known)
            if not any(line.text in finding.text for finding in found)
        ]
        lines += map(line_of, found)
        lines += [PreflightLine("info", text) for text in self._companions.remarks(result.spec)]
        lines += [PreflightLine("error", text) for text in self._companions.problems(result.spec).values()]
        if not self._is_current:
            lines += [line_of(each, is_old=True) for each in self._of_cluster()]
        lines.sort(key=lambda line: line.severity != "error")
        return [self.passed.line(state.values), *lines] if self.passed is not None else lines

    def at_fields(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the errors and the warnings, by the key of the field that each is about."""
        found = (*self._by_rule(), *self._of_cluster())
        said = {
            severity: {self._key_of(each): each.sentence for each in found if each.severity == severity}
            for severity in ("error", "warning")
        }
        return {**said["error"], **self._companions.problems(self._state.result.spec)}, said["warning"]

    def _key_of(self, finding: Finding) -> str:
        values = self._state.values
        if finding.field == "mounts" and not re.search(
            rf" {re.escape(values['claim'])} ", f"{finding.text} "
        ):
            return "more_volumes"
        return field_key(finding.field, values)

    def _by_rule(self) -> Sequence[Finding]:
        result = self._state.result
        if self._statically[0] is not result:
            found: Sequence[Finding] = ()
            if not result.problems:
                spec = result.spec
                found = [
                    each
                    for each in check_statically(result.kind, spec, result.kind.manifest(spec))
                    # That nothing outlives the pods is said once.
                    if spec.mounts or each.severity == "error" or each.field != "log_dir"
                ]
            self._statically = (result, found)
        return self._statically[1]

    def _of_cluster(self) -> Sequence[Finding]:
        """Return what the cluster had to say, but for fields that were changed since."""
        result = self._state.result
        if (answer := self._answer_to(result)) is not None:
            return answer.findings
        if not self._answers:
            return ()
        last = self._answers[-1]
        changed = {
            each.name
            for each in fields(JobSpec)
            if getattr(last.spec, each.name) != getattr(result.spec, each.name)
        }
        if last.kind != result.kind.title or "namespace" in changed:
            return ()
        return [each for each in last.findings if each.field not in changed]

    @property
    def _is_current(self) -> bool:
        return self._answer_to(self._state.result) is not None

    def _answer_to(self, result: FormResult) -> _Answer | None:
        job = (result.kind.title, result.spec)
        return next((each for each in self._answers if (each.kind, each.spec) == job), None)

    def _holds(self, answer: _Answer) -> bool:
        return time.monotonic() - answer.at_s < self._times.holds_s
