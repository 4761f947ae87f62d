"""Record of a run: its settings, its placement, and the last and best values of its scalars."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from k8s.text.lazy_pattern import lazy_pattern
from tui.text.natural_order import tag_rank

if TYPE_CHECKING:  # the first frame needs only the records
    from trainer.tfevents import RunText, ScalarCurve

MAX_TAGS, MAX_SETTINGS, MAX_TEXT = 64, 200, 400
# Points of the best loss so far; the time to a loss is exact to one of them.
MAX_BEST = 200
_HIGHER_IS_BETTER = lazy_pattern(
    r"acc|score|f1\b|bleu|rouge|auc|\bmap\b|reward|return|precision|recall|psnr|/s(?:ec)?\b|per_s(?:ec)?|tflops|mfu"
)
_RATE = lazy_pattern(r"([\w-]+?)(?: ?/ ?|_?per_?)s(?:ec|econd)?(?![a-z])(.*)", re.IGNORECASE)
# The last line of Horovod's synthetic benchmark: `Total img/sec on 4 GPU(s): 820.5 +-2.5`.
_TOTAL_RATE = lazy_pattern(r"\bTotal (\w{1,20})/s(?:ec)?\b[^:\n]{0,40}: *(\d[\d.]*)", re.IGNORECASE)
_FLAG = lazy_pattern(r"--?[A-Za-z][\w.-]*")
_ASSIGNMENT = lazy_pattern(r"(?:--?|\+{0,2})([A-Za-z][\w./-]*)=(.*)", re.DOTALL)
_SHELLS = ("sh", "bash", "dash", "zsh")


class TagSummary(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Values of one tag. None stands for NaN and infinity."""

    last: float | None = None
    low: float | None = None
    high: float | None = None
    step: int = 0
    count: int = 0


class RunRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A run as it was last seen: of a job, or of a folder. Times are in seconds since 1970."""

    uid: str
    name: str = ""
    namespace: str = ""
    kind: str = ""
    context: str = ""
    user: str = ""
    status: str = ""
    created_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    seen_s: float = 0.0
    gpus: int = 0
    gpu_model: str = ""
    nodes: tuple[str, ...] = ()
    placement: str = ""
    """GPUs by node, such as `a100-1: 0-3`; empty if unknown."""
    link: str = ""
    """Slowest link between two of its GPUs; empty if unknown."""
    image: str = ""
    code: str = ""
    """Requested repository and commit; empty if unknown."""
    command: str = ""
    arguments: dict[str, str] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables with literal values, secrets redacted."""
    hparams: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    log_dir: str = ""
    source: str = ""
    """Origin of its values: a folder, a pod, a log."""
    tags: dict[str, TagSummary] = msgspec.field(default_factory=dict)
    best: tuple[tuple[float, float], ...] = ()
    """Seconds since the start, and the lowest loss until then."""
    throughput: float | None = None
    throughput_unit: str = ""
    is_partial: bool = False
    """True if its last values could not be read; those known are older."""
    reason: str = ""
    """Reason of its status, such as the error that ended it; empty if unknown."""
    alert: str = ""
    """That its loss had diverged at its end; empty if it had not."""
    problem: str = ""
    """The reason that nothing could be read; not stored."""

    @property
    def has_run(self) -> bool:
        """Return False if its job ended before any of its pods had started."""
        never_started = self.created_s is not None and self.started_s is None and not self.nodes
        return not (never_started and self.status in ("Failed", "Deleted") and not self.tags)

    @property
    def loss_tag(self) -> str:
        """Return the tag of the training loss; empty if there is none."""
        return loss_tag(self.tags)

    @property
    def loss(self) -> float | None:
        """Return the last loss, NaN if it was not finite; None if there is none."""
        found = self.tags.get(self.loss_tag)
        return None if found is None else math.nan if found.last is None else found.last

    def best_of(self, tag: str) -> float | None:
        """Return the best finite value of a tag; None if there is none."""
        found = self.tags.get(tag)
        return None if found is None else found.high if is_higher_better(tag) else found.low

    def duration_s(self, now_s: float) -> float | None:
        """Return the run time so far; None if its start or its end is unknown."""
        end_s = self.ended_s if self.ended_s is not None or self.has_ended else now_s
        return max(0.0, end_s - self.started_s) if end_s is not None and self.started_s is not None else None

    @property
    def has_ended(self) -> bool:
        """Return True unless the run was running or waiting when last seen."""
        return self.status in ("Succeeded", "Failed", "Deleted", "")

    def gpu_hours(self, now_s: float) -> float | None:
        """Return its GPUs times its run time; None if unknown."""
        duration_s = self.duration_s(now_s)
        return None if duration_s is None or not self.kind else self.gpus * duration_s / 3600

    def time_to(self, loss: float) -> float | None:
        """Return the seconds until the loss was first that low; None if it never was."""
        return next((at_s for at_s, value in self.best if value <= loss), None)

    def settings(self) -> dict[str, str]:
        """Return everything that was set or given, by name: arguments as such, variables after a `$`."""
        gpus = f"{self.gpus} × {self.gpu_model}" if self.gpu_model else str(self.gpus)
        named = {
            "kind": self.kind,
            "gpus": gpus if self.kind else "",
            "placement": self.placement or ", ".join(self.nodes),
            "link": self.link,
            "image": self.image,
            "code": self.code,
            "command": self.command,
        }
        arguments = {key.lstrip("-"): text for key, text in self.arguments.items()}
        # Trainers write their arguments to event files again, with underscores.
        known = {key.replace("-", "_") for key in arguments}
        hparams = {key: text for key, text in self.hparams.items() if key.replace("-", "_") not in known}
        env = {f"${key}": text for key, text in self.env.items()}
        return {key: text for key, text in {**named, **arguments, **hparams, **env}.items() if text}


def loss_tag(tags: Iterable[str]) -> str:
    """Return the tag of the training loss; of several of one kind, the first. Empty if there is none."""
    return min((tag for tag in tags if "loss" in tag.lower()), key=tag_rank, default="")


def is_higher_better(tag: str) -> bool:
    """Return True for accuracies, scores and rates."""
    return "loss" not in tag.lower() and bool(_HIGHER_IS_BETTER.search(tag.lower()))


def with_values(
    record: RunRecord,
    curves: Iterable[ScalarCurve],
    texts: Iterable[RunText] = (),
    lines: Iterable[str] = (),
    *,
    adds: bool = False,
) -> RunRecord:
    """Return the record with the values of its curves, its arguments, and the total rate in lines of its log.

    Set `adds` if the curves continue those that the record was made of.
    """
    by_tag: dict[str, ScalarCurve] = {}
    for curve in curves:
        # Of several runs in one folder, the longest counts.
        if len(curve) and len(curve) > len(by_tag.get(curve.tag, ())):
            by_tag[curve.tag] = curve
    tags = sorted(by_tag, key=tag_rank)[:MAX_TAGS]
    known = record.tags if adds else {}
    found = {_short(tag): _summary(by_tag[tag], known.get(_short(tag))) for tag in tags}
    found = dict(list({**known, **found}.items())[:MAX_TAGS]) or record.tags
    loss = by_tag.get(loss_tag(tags))
    rate = _total_rate(lines) or _rate_in(by_tag, max(1, record.gpus))
    return msgspec.structs.replace(
        record,
        tags=found,
        best=record.best if loss is None else _best(loss, record.started_s, record.best if adds else ()),
        throughput=rate[0] if rate else record.throughput,
        throughput_unit=rate[1] if rate else record.throughput_unit,
        hparams=_hparams(texts) or record.hparams,
    )


def with_past(record: RunRecord, past: RunRecord | None) -> RunRecord:
    """Return the record of a job with what was recorded earlier and can no longer be read."""
    if past is None:
        return record
    names = ["placement", "link", "gpu_model"] if not record.placement else []
    if not record.tags:
        names += ["tags", "best", "source", "is_partial", "problem"]
    if record.throughput is None:
        names += ["throughput", "throughput_unit"]
    return msgspec.structs.replace(record, **{name: getattr(past, name) for name in names})


def _summary(curve: ScalarCurve, before: TagSummary | None) -> TagSummary:
    finite = [value for value in curve.values if math.isfinite(value)]
    lows, highs = finite[:], finite[:]
    if before is not None:
        lows += [] if before.low is None else [before.low]
        highs += [] if before.high is None else [before.high]
    last = curve.values[-1]
    return TagSummary(
        last if math.isfinite(last) else None,
        min(lows, default=None),
        max(highs, default=None),
        curve.steps[-1],
        len(curve) + (before.count if before is not None else 0),
    )


def _best(
    curve: ScalarCurve, started_s: float | None, before: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    first_s = curve.wall_times[0]
    origin_s = started_s if started_s is not None and started_s <= first_s else first_s
    found = list(before)
    lowest = found[-1][1] if found else math.inf
    for at_s, value in zip(curve.wall_times, curve.values, strict=True):
        if value < lowest:
            lowest = value
            found.append((round(max(0.0, at_s - origin_s), 1), float(f"{value:.6g}")))
    step = max(1.0, (len(found) - 1) / (MAX_BEST - 1))
    return tuple(found[round(at * step)] for at in range(min(len(found), MAX_BEST)))


def _total_rate(lines: Iterable[str]) -> tuple[float, str] | None:
    found = [match for line in lines if (match := _TOTAL_RATE.search(line))]
    try:
        return (float(found[-1][2]), f"{found[-1][1].lower()}/s") if found else None
    except ValueError:
        return None


def _rate_in(curves: Mapping[str, ScalarCurve], gpus: int) -> tuple[float, str] | None:
    # The mean of the second half, because the first steps are slow. Steps tell least.
    named = [(tag, match) for tag in curves if (match := _RATE.search(tag.rpartition("/per")[0] or tag))]
    named.sort(key=lambda each: each[1][1].lower().startswith(("step", "it")))
    for tag, match in named:
        values = curves[tag].values
        finite = [value for value in values[len(values) // 2 :] if math.isfinite(value)]
        if finite:
            each = gpus if "per GPU" in match[2] or "_per_gpu" in match[2] else 1
            return each * math.fsum(finite) / len(finite), f"{match[1].lower().strip('_')}/s"
    return None


def _hparams(texts: Iterable[RunText]) -> dict[str, str]:
    from k8s.text.redact import Redactor

    # Longer texts are prose, samples and configuration files.
    found = {text.name: text.text.strip() for text in texts if len(text.text) <= MAX_TEXT}
    return _few(Redactor().object({name: text for name, text in found.items() if "\n" not in text}))


def with_template(record: RunRecord, template: Mapping[str, Any], container: str = "") -> RunRecord:
    """Return the record with image, command and variables of a container, by default the first, redacted."""
    from k8s.text.redact import Redactor

    spec = Redactor().object(template.get("spec") or {})
    containers = [each for each in spec.get("containers") or () if isinstance(each, Mapping)]
    if not containers:
        return record
    first = next((each for each in containers if each.get("name") == container), containers[0])
    words = [str(word) for name in ("command", "args") for word in first.get(name) or ()]
    command, arguments = parse_arguments(words)
    return msgspec.structs.replace(
        record,
        image=_short(str(first.get("image") or "")),
        command=_short(command),
        arguments=_few(arguments),
        env=_few(_literals(first)),
        code=_short(_code_of(spec)),
    )


def _literals(container: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(each["name"]): str(each["value"])
        for each in container.get("env") or ()
        if isinstance(each, Mapping) and each.get("name") and each.get("value") is not None
    }


def _code_of(spec: Mapping[str, Any]) -> str:
    for container in spec.get("initContainers") or ():
        env = _literals(container) if isinstance(container, Mapping) else {}
        if repository := env.get("GIT_SYNC_REPO"):
            commit = env.get("GIT_SYNC_REV") or env.get("GIT_SYNC_BRANCH")
            return f"{repository}@{commit}" if commit else repository
    return ""


def parse_arguments(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a command without its options, and the options by name; `true` for those without a value.

    >>> parse_arguments(["python", "train.py", "--lr=0.1", "--model", "vgg16", "--amp", "data.batch=8"])
    ('python train.py', {'--lr': '0.1', '--model': 'vgg16', '--amp': 'true', 'data.batch': '8'})
    """
    words = _without_shell(words)
    plain: list[str] = []
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 1
        if match := _ASSIGNMENT.fullmatch(word):
            name = word[: match.start(2) - 1]
            found.setdefault(name, []).append(match[2])
        elif not _FLAG.fullmatch(word):
            plain.append(word)
        elif not following or _FLAG.fullmatch(following) or _ASSIGNMENT.fullmatch(following):
            found.setdefault(word, []).append("true")
        else:
            found.setdefault(word, []).append(following)
            at += 1
    return " ".join(plain), {name: " ".join(texts) for name, texts in found.items()}


def _without_shell(words: Sequence[str]) -> list[str]:
    is_shell = bool(words) and PurePosixPath(words[0]).name in _SHELLS
    script = next((at for at, word in enumerate(words[:3]) if re.fullmatch(r"-[a-z]*c", word)), 0)
    if not is_shell or not script or script + 1 >= len(words):
        return list(words)
    given = words[script + 2 :]  # $0, $1…
    try:
        inner = shlex.split(words[script + 1], comments=True)
    except ValueError:
        inner = words[script + 1].split()
    return [*_without_shell(inner), *given]


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _few(texts: Mapping[str, str]) -> dict[str, str]:
    return {_short(key): _short(text) for key, text in list(texts.items())[:MAX_SETTINGS]}
