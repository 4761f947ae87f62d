"""What stands in the new-job form, who put it there, and which of its problems may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from k8s.jobs.clone import Clone, next_name
from k8s.kinds import CREATABLE
from k8s.models.job_spec import JobSpec
from k8s.snapshot import ClusterSnapshot, Job
from tui.jobs.new_job.fields import ABOUT_COMMAND, COMMAND, RARE, SECTIONS, default_texts
from tui.jobs.new_job.form_spec import key_of_field, name_base, read, suggest_name, texts_of

_TOLD_OTHERWISE = ("name", "namespace", "user", "command", "trainer", "log_dir")
"""What a form may say in other words than the job that it clones: a shell runs the same command."""
_ASKED = {question.key for _, part in SECTIONS for question in part} | {
    question.key for question in (*ABOUT_COMMAND, *RARE)
}


class JobAnswers:
    """The answers of one form. What the console fills in by itself is no reason to keep a draft."""

    def __init__(self, namespace: str, user: str = "", clone: Clone | None = None) -> None:
        """Start with what is usual, or with what makes a job like the one that is cloned."""
        self.like = clone.like if clone is not None else ""
        """Name of the job that is cloned; empty for a new one."""
        self.user = user
        """Who asks."""
        texts = default_texts() | {"namespace": namespace or "default"}
        spec = clone.spec if clone is not None else None
        if clone is not None and spec is not None:
            texts |= texts_of(spec, clone.kind or CREATABLE[0])
        self.texts: Mapping[str, str] = texts
        """The answers, by the key of their question."""
        self._kept: Mapping[str, str] = texts
        self._suggested = texts["name"]
        self._trainer_workers = ""
        self._given: set[str] = set()
        self._touched: set[str] = set()
        self._refused: dict[str, str] = {}
        self._read()
        self.not_carried_over = self._lost(clone, spec) if clone is not None and spec is not None else ""
        """In a sentence, what a clone lacks of the job that it is like; empty where nothing."""
        if clone is None:
            self._suggest_name(())

    def _lost(self, clone: Clone, spec: JobSpec) -> str:
        """Name what the wish leaves out, and what this form does of the wish."""
        wish = self.wish.spec
        names = [field.name for field in fields(spec) if field.name not in _TOLD_OTHERWISE]
        changed = [name.replace("_", " ") for name in names if getattr(spec, name) != getattr(wish, name)]
        lost = ", ".join((*clone.lost, *changed))
        return f"Not carried over: {lost}." if lost else ""

    def _read(self) -> None:
        self.wish = read(self.texts, self.user)
        """What the answers amount to."""

    def give(self, key: str, text: str) -> None:
        """Take an answer that somebody typed or chose."""
        self._given.add(key)
        self._touched.add(key)
        self._refused.pop(key, None)
        self.texts = {**self.texts, key: text}
        self._read()

    def offer(self, key: str, text: str) -> None:
        """Fill in an answer unless somebody gave one."""
        if key not in self._given:
            self._kept = {**self._kept, key: text}
            self.texts = {**self.texts, key: text}
            self._read()

    def suggest(self, snapshot: ClusterSnapshot) -> None:
        """Fill in what depends on the cluster: a name that is free, and how many workers."""
        self._suggest_name(snapshot.jobs)
        if not self.like:
            self._suggest_workers(snapshot)

    def _suggest_workers(self, snapshot: ClusterSnapshot) -> None:
        """In the sandbox fill in two workers for a packaged trainer where two GPUs are free.

        Decided once: the number must not change under whoever reads it.
        """
        if not self._trainer_workers and snapshot.is_synced and snapshot.server_version:
            free = sum(node.free.get(self.texts["gpu_resource"], 0) for node in snapshot.nodes)
            self._trainer_workers = "2" if snapshot.is_sandbox and free >= 2 else "1"
        if self._trainer_workers:
            self.offer("workers", "1" if self.texts["run"] == COMMAND else self._trainer_workers)

    def _suggest_name(self, jobs: Iterable[Job]) -> None:
        """Offer a name that none of `jobs` has, unless somebody typed one."""
        if self.texts["name"] != self._suggested:
            return
        taken = {job.ref.name for job in jobs if job.ref.namespace == self.texts["namespace"]}
        if self.like:
            self._suggested = next_name(self.like, {self.like, *taken})
        else:
            self._suggested = suggest_name(name_base(self.texts), taken)
        self._kept = {**self._kept, "name": self._suggested}
        self.texts = {**self.texts, "name": self._suggested}
        self._read()

    def resume(self, texts: Mapping[str, str]) -> None:
        """Go on with a draft."""
        self._given |= set(texts)
        self.texts = {**self.texts, **texts}
        self.keep(self.texts)
        self._read()

    def keep(self, texts: Mapping[str, str]) -> None:
        """Note that these answers are kept as a draft."""
        self._kept = texts

    @property
    def is_dirty(self) -> bool:
        """Whether something was given that is kept nowhere."""
        return self.texts != self._kept

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong, by the key of the question: by the server's words, then by our own rules."""
        return {**self._refused, **self.wish.problems}

    @property
    def shown_problems(self) -> Mapping[str, str]:
        """What is wrong with answers that somebody gave, left, or tried to use."""
        return {key: words for key, words in self.problems.items() if key in {*self._touched, *self._refused}}

    def touch(self, keys: Iterable[str]) -> None:
        """Show from now on what is wrong with these."""
        self._touched |= set(keys)

    def try_all(self) -> None:
        """Show everything that is wrong by our own rules, and forget what the server said before."""
        self._refused.clear()
        self.touch(self.wish.problems)

    def refuse(self, causes: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Note what the server says is wrong, by fields of `JobSpec`.

        Returns:
            The keys of the questions that are meant, and sentences that belong to none.
        """
        keys, homeless = [], []
        for name, words in causes.items():
            key = key_of_field(name, self.texts)
            if key in _ASKED:
                self._refused[key] = words
                keys.append(key)
            else:
                homeless.append(f"{name}: {words}" if name else words)
        return keys, homeless
