"""Positions, name-value pairs and tables in the output of training scripts, found by their structure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from k8s.text.lazy_pattern import lazy_pattern

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:nan|NaN|NAN|[iI]nf(?:inity)?|INF)"
)
# Versions, times, dates, fractions, file names and numbers with a unit are no values.
_ENDS_NUMBER = r"(?!\.?\w|[:-]\w|/(?!\d+\.\d)\w|,\d|\s?[*+]\s?(?!\d+[,;])\w)"


class RunPosition(NamedTuple):
    """A position in a training run, as printed."""

    step: int | None = None  # None if only an epoch is named
    total: int | None = None
    epoch: int | None = None
    first_epoch: int = 1  # 0 in forms that count epochs from 0
    is_global: bool = False  # the step counts over all epochs
    is_bar: bool = False


# For lower-case text; `_rank` judges what is before the word.
_COUNTER = lazy_pattern(
    r"(epochs?|ep|steps?|iter(?:ation)?s?|itrs?|its?|minibatch(?:es)?|batch(?:es)?|timesteps?|env_?steps?|nupdates|updates?|up(?=\.)|episodes?|rounds?"
    r"|ticks?|train(?:ing)?(?=:| \d{1,9},))"
    r"(?:[_ ]?(?:idx|index|i|num|number|no|id|count|done|seen)|/max_steps|\(\w{1,12}\)|\.)?"
    r"""["']?\s{0,60}+(?:(?:[:=#\[(|│-]|no\.?)\s{0,16})?["'#:\[(]{0,2}\s{0,8}"""
    r"(\d{1,3}(?:,\d{3})+|\d{1,18}+)(\.0+|k(?=[\s,]))?(?!\.?\w|%|:\d\d|-\d(?!\d{0,12}\]))"
    r"(?:\s{0,8}(?:/|of)\s{0,8}(\d{1,3}(?:,\d{3})+|\d{1,18})(?![\w/.]))?"
)
# What follows an epoch: `[3][ 50/196]`, `1 [640/60000 (1%)]`, `2 | 200/ 2983 batches`, `1, 50/300`.
_WITHIN_EPOCH = lazy_pattern(
    r"(?:\s?\(\s{0,3}\d{1,3}%\))?[\])}]?[\s:,|>-]{0,8}[\[(]?\s{0,8}(\d{1,12})\s{0,4}/\s{0,8}(\d{1,12})(?![/\d])"
)
# tqdm's, Keras's, and rich's bars, with any glyphs or none.
_BAR = lazy_pattern(
    r"(\d{1,12})/\s{0,6}(\d{1,12}|\?|unknown)\s{0,3}(?:\[\s{0,3}(?:\d{1,4}:\d\d|[=>.-]|[^\w\s])|[━╸╺─█▉-▏#=]|-\s\d)"
    r"|(?:[━╸╺─█]\|?|%\|[^|]{0,200}\|)\s{0,4}(\d{1,12})/(\d{1,12})\b"
)
# Bars of anything but training.
_CHORE = lazy_pattern(
    r"\W{0,4}(?:map|download|load|fetch|token|generat|filter|convert|pack|resolv|sav|extract|writ|read|creat|cach|upload"
    r"|process|sanity)"
)
_SCALES = {"": 1, "k": 1000, "m": 10**6, "g": 10**9}
_SCALED = lazy_pattern(
    r"(?<![\w./])(\d{1,9}(?:\.\d{1,3})?)([kmg]?)(its?|steps?|batch(?:es)?|ex|img)?"
    r"(?:/\s?(\d{1,9}(?:\.\d{1,3})?)([kmg]?)(its?|steps?|batch(?:es)?|ex|img)?)?(?=\s{0,2}\[|\s|$)"
)
_LEADING_FRACTION = r"^\W{0,3}(?P<step>\d{1,12})/(?P<total>\d{1,12})(?:: |\s(?!\s?\d\d:))"
_STARTS_WITH_FRACTION = lazy_pattern(_LEADING_FRACTION)
# A text that each form holds, the form, and its first epoch.
_RARE_FORMS = tuple((guard, lazy_pattern(form), first_epoch) for guard, form, first_epoch in (
    ("][", r"\[\s{0,8}(?P<epoch>\d{1,9})/\d{1,9}\]\[\s*(?P<step>\d{1,12})/\s*(?P<total>\d{1,12})\]", 0),
    ("batch:", r"(?P<epoch>\d{1,9})epoch\b[^\d]{0,20}\d{1,12}-(?P<step>\d{1,12})batch", 1),
    ("|", r"(?:^|[\]:\s])\d{1,9}\|(?P<step>\d{1,12})\|(?=\s?[a-z])", 1),
    ("batches", r"\b(?P<step>\d{1,12})\s{0,4}(?:/\s{0,4}\d{1,12}\s{0,4})?batches\b", 1),
    ("steps", r"\b(?P<step>\d{1,12})\s{0,4}(?:/\s{0,4}\d{1,12}\s{0,4})?steps\b(?!/)", 1),
    ("iter", r"\b(?P<step>\d{1,12})\s{0,4}(?:/\s{0,4}\d{1,12}\s{0,4})?iter(?:ation)?s\b(?!/)", 1),
    ("[", r"^\W{0,3}\[(?P<epoch>\d{1,9}),\s{1,8}(?P<step>\d{1,12})\]", 1),
    ("it", r"\b(?P<step>\d{1,12})it(?:/(?!s)| \[)", 1),
    ("after ", r"\bafter (?P<step>\d{1,12}) (?:\w{1,20} ){0,2}"
        r"(?:step|iteration|batch|epoch)(?:s|es|\(e?s\))?(?!\w)", 1),
    ("/", r"(?:^|[\]|>-]\s|:\d\d(?:[.,]\d{1,6})?\s)\W{0,8}(?P<epoch>\d{1,6})\s?/\s?\d{1,6}"
        r"[\])]?[\s,|:-]{1,8}[\[(]?\s{0,8}(?P<step>\d{1,12})\s?/\s{0,8}(?P<total>\d{1,12})"
        r"[\])]?(?!\s?[/\d])", 1),
    ("epoch/", r"\bepoch/(?:iter\w{0,6}|step|batch)\W{1,4}(?P<epoch>\d{1,9})/(?P<step>\d{1,12})", 1),
    ("ms run", r"^\s{0,8}(?P<step>\d{1,12})\s{1,8}\d[\d.]{0,12} ms run", 1),
    ("loss ", r"\bloss (?P<step>\d{1,12}) (?=\d{1,9}\.\d)", 1),
    ("", r"^\s{0,8}(?P<epoch>\d{1,9}) (?P<step>\d{1,12}) (?=[a-z_]{1,20}\s?[=:])", 1),
    ("e-", r"(?:^|[\s:])\[(?P<step>\d{1,12}), \d{1,3}\.?\d{0,24}e-\d{1,3}\]$", 1),
    ("/", _LEADING_FRACTION, 1),
    ("/", r"\s(?P<step>\d{1,12})/(?P<total>\d{1,12})\s{0,4}$", 1),
    ("/", r"(?<!\w)(?<!% )[\[(]\s{0,8}(?P<step>\d{1,12})/\s{0,8}(?P<total>\d{1,12})[\])]", 1),
    ("", r"(?<![\w.])[iet]\s?[:=]\s?(?P<step>\d{1,12})(?![\w.:%])", 1),
))  # fmt: skip
# `[3]`, `3:` or `3/20,` where a message starts.
_LEADING = lazy_pattern(
    r"(?:^|[\]>)|-]\s|\b(?:info|debug)(?:\s|:\w{1,24}:))\s{0,8}"
    r"(?:\[(\d{1,12})(?:\](?=[\s:])|\s\|)|(\d{1,12})(?:\s?/\s?\d{1,12})?(?=:\s|\s?[|,;-]\s|\s\(|\s\[[a-z_]{0,16}\s?loss))"
)
_WENET = lazy_pattern(r"\b(?:train|cv)(?: \|[^|]{0,40}\|)? batch (\d{1,9})/(\d{1,12}) ")
_HEADING = lazy_pattern(
    r"(?:^|[-:\]>\d]\s)\W{0,40}(?:(?:going into|end of|start(?:ing|ed)?|begin|train(?:ing)?)\s)?\W{0,4}"
    r"epoch\W{0,40}(\d{1,9})(?:\s?(?:/|of)\s?\d{1,9})?\]?(?:\W{0,40}"
    r"|\s?[|,;(-]{1,2}\s?(?:(?:epoch\s)?(?:time|took|elapsed|duration|eta|lr)\b|\d).{0,80}"
    r"|\s(?:results?|summary|stat(?:istic)?s|metrics|report|结果|結果)\b.{0,40}"
    r"|\s(?:took|elapsed|finished|done|ended|end|start(?:s|ed)?|begins?)\b.{0,60})$"
)
_GLOBAL_WORDS = frozenset({"global", "current", "cur", "acc", "completed", "env", "opt", "optimizer"})
_OWN_WORDS = frozenset({"train", "training", "trainer", "lightning", "progress", "batch", "this", "runtime"})
_FOREIGN_WORDS = frozenset({
    "per", "every", "total", "max", "num", "min", "n", "warmup", "accumulation", "skipped", "nan", "each",
    "first", "last", "next", "best", "eval", "save", "logging", "log", "test", "val", "valid", "validation",
    "sample", "samples", "episode", "ppo", "inner", "ms", "s", "sec", "time", "than", "patience",
})  # fmt: skip
_GLUED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_/.-")


@lru_cache(2048)
def _rank(glued: str, is_apart: bool, word: str) -> int:
    """Rank a counter by its name and the word before it: 0 is no training counter, 5 counts over epochs."""
    rank = 4 if word.startswith("step") else 1 if word.startswith(("tick", "round", "episode")) else 3
    if word.startswith("times"):
        rank = 5
    if not glued:
        return rank
    if not is_apart and glued[-1] not in "_/.-":
        return 0
    last = re.split(r"[_/.-]", glued.strip("_/.-"))[-1]
    if last in _GLOBAL_WORDS:
        return 5
    if word.startswith(("update", "times")) and not is_apart and (last == "num" or "total" in glued):
        return 5
    if last in _FOREIGN_WORDS:
        if is_apart and word == "epoch" and last in _SPLIT_WORDS:
            return 3
        if last == "total" and word == "step":
            return 1
        return rank if last == "n" and word.startswith("iter") else 0
    return rank if is_apart or last in _OWN_WORDS or glued[-1] == "-" else 0


def _rank_at(low: str, start: int, word: str) -> int:
    end = start - 1 if start and low[start - 1] == " " else start
    first, floor = end, max(0, end - 24)
    while first > floor and low[first - 1] in _GLUED:
        first -= 1
    return _rank(low[first:end], end < start, word)


def _integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def _unscaled(found: re.Match[str]) -> str:
    """Return a count of tqdm, `1.23kit` or `12.0it/900it`, in whole numbers."""
    digits, scale, unit, total, total_scale, total_unit = found.groups()
    if not (unit or total) or not (scale or unit or total_scale or total_unit or "." in digits):
        return found[0]
    count = round(float(digits) * _SCALES[scale])
    unit = "" if total and found.string.startswith("[", found.end() + 1) else unit or ""
    return f"{count}{unit}/{round(float(total) * _SCALES[total_scale])}" if total else f"{count}{unit}"


@lru_cache(1024)  # curves and signs of life are read from the same lines
def place_in(text: str) -> RunPosition | None:
    """Return the position that a line names."""
    low = text.lower()
    if "it" in low or "k/" in low:
        low = _SCALED.sub(_unscaled, low)
    epoch: int | None = None
    epochs: int | None = None
    first_epoch, start, end, rank, is_bare = 1, 0, 0, 0, False
    found: RunPosition | None = None
    for match in _COUNTER.finditer(low):
        word = match[1]
        value = _rank_at(low, match.start(), word)
        if not value:
            continue
        number, total = _integer(match[2]), _integer(match[4]) if match[4] else None
        if match[3] == "k":
            number *= 1000
        if word == "epochs":
            if "loss" not in low:
                continue  # a setting
            word = "epoch"
        if word in ("epoch", "ep", "train", "training"):
            within = _WITHIN_EPOCH.match(low, match.end())
            if match[3] or epoch is not None:
                continue
            if word[:5] == "train" and not within and low[match.end() : match.end() + 1] != ",":
                if "loss" in low and not rank and ":" in match[0]:
                    found, rank = RunPosition(number, total), 1
                continue
            epoch, epochs, is_bare = number, total, match[0].startswith("epoch ")
            start, end = match.span()
            # ImageNet's example, timm and Swin count from 0.
            opens = within[0] if within and word[:5] == "train" else match[0] if total is None else ""
            if "[" in opens and ":" in match[0]:
                first_epoch = 0
            if within and rank < 2:
                found, rank = RunPosition(int(within[1]), int(within[2])), 2
            continue
        if value > rank:
            # `epoch 2/3 step 400/564`: the packaged trainers count steps over all epochs.
            is_global = value == 5 or (
                match.start() == end + 1 and low.startswith("step ", match.start()) and is_bare
            )
            found, rank = RunPosition(number, total, is_global=is_global), value
    if rank < 2 and "/" in low and (fraction := _STARTS_WITH_FRACTION.search(low)) and found:
        found = RunPosition(int(fraction["step"]), int(fraction["total"]), is_global=True)
    if (
        found is None
        and "/" in low
        and (bar := _BAR.search(low, end) or _BAR.search(low, low.rfind("]", 0, start) + 1, start))
    ):
        if _CHORE.match(low) or "examples/s" in low:
            return None
        length = str(bar[2] or bar[4])
        found = RunPosition(int(bar[1] or bar[3]), int(length) if length.isdecimal() else None, is_bar=True)
        if epoch is not None and "v_num=" in low:
            first_epoch = 0  # Lightning
        if epochs is not None and found.total == epochs and (epoch or 0) - (found.step or 0) in (0, 1):
            found = None  # a bar of the epochs
    if wenet := _WENET.search(low) if " batch " in low else None:
        return RunPosition(int(wenet[2]), None, int(wenet[1]), 0)
    if found is None and epoch is None:
        return _rare_place(low)
    found = found or RunPosition()
    return found._replace(epoch=epoch, first_epoch=first_epoch)


def _rare_place(low: str) -> RunPosition | None:
    for guard, form, first_epoch in _RARE_FORMS:
        if guard in low and (match := form.search(low)):
            groups = match.groupdict()
            epoch, total = groups.get("epoch"), groups.get("total")
            return RunPosition(
                int(match["step"]), int(total) if total else None, int(epoch) if epoch else None, first_epoch
            )
    if leading := _LEADING.search(low[:200]):
        return RunPosition(int(leading[1] or leading[2]))
    return None


def heading_epoch(text: str) -> int | None:
    """Return the epoch of a line that is nothing but a heading: `Epoch 3/20`."""
    heading = _HEADING.search(text.lower()[:300])
    return int(heading[1]) if heading else None


_PAIR = lazy_pattern(
    r"([A-Za-z_](?<![\w./@%#\\-].)[\w./@'-]{0,80}+)"
    r"""(?:["'`]?(?:\s?[(\[][^():\]]{0,40}+[)\]]|\sper\s[a-z]{1,12})?["']?\s{0,16}+(?:[:=]{1,2}>?|:=)\s{0,24}+"""
    r"|\s{0,40}+[|│┃║]\s{1,40}+|\s(?:is|-)\s|(?:(?<=')|\"),\s|(?:\sper\s[a-z]{1,12})?(\s{1,40}+))"
    r"""["'(\[]{0,2}(?:[A-Za-z_.]{2,20}+\d{0,3}+\()?"""
    rf"({NUMBER}){_ENDS_NUMBER}"
)
# darknet's and Kaldi's lines hold a value without its name before it.
_UNNAMED = (
    rf"(?:^|\|)\s{{0,8}}\d{{1,9}}: ({NUMBER}), (?:{NUMBER}) avg\b"
    rf"|(?:objective function|[Ss]core at iteration) [^|]{{0,80}}?\bis ({NUMBER})(?![\w.])"
    rf"|\w{{0,40}}(?:[Ll]oss|[Cc]ost)\b[^:=|{{}}.]{{0,60}}(?:[:=]|\bis\b)\s{{0,24}}({NUMBER})(?=[.'\"]{{0,2}}(?:\s{{0,4}}$|\s[A-Z]))"
    rf"|(?<![\w.])({NUMBER}) (?:avg )?(?:cost|loss)(?=[,;\]]|$)"
)
# MLPerf's records.
_RECORD = lazy_pattern(rf'"key": ?"(\w{{0,40}}loss\w{{0,40}})", ?"value": ?({NUMBER})\b')
LOSS = lazy_pattern(r"loss(?!les|y)", re.IGNORECASE)
OTHER_LOSS = lazy_pattern(
    r"(?:^|[_/.\s-])(?:nll|ce|bce|xent|cross[_-]?entropy\w*|r?mse(?:_\w{1,8})?|rmsle|mae|mape|l[12](?:_(?:[a-z]_)?(?:train|val|test|trn|tst))?|elbo|objf"
    r"|objs?|cost|kld|[mc]lm(?:-[a-z]{2})*|l_(?!r)\w{1,12}|(?:train_network_)?err(?:or)?(?:_[a-z])?|learn)$",
    re.IGNORECASE,
)
_NO_LOSS = lazy_pattern(
    r"loss(?:es)?[_ ./-]?(?:scal\w+|weights?|w|coef\w*|fn|func\w*|type|name|mode|ratio|factor|lambda"
    r"|threshold|margin|reduction|smoothing|interval|every|freq|kwargs|cfg|config|best|count|chunks?|alpha|beta|gamma|delta"
    r"|eps\w*|temp\w*|warmup|decay|clip|tol\w*|patience|window|dim|layers?|num|params?|opts?|options|args|py)\b"
    r"|loss.{0,40}[_./ -](?:weights?|coef\w*|alpha|beta|gamma|margin|smooth(?:ing)?|reduction"
    r"|ratio|temperature)$"
    r"|\b(?:best|min|minimum|lowest|target|stop|use|no|is|with_loss|max|previous|prev|old|packet|heat|expected"
    r"|below|init|initial|lambda|weight|coef|gamma)[_ .-](?:\w{1,20}[_ .-])?loss",
    re.IGNORECASE,
)
_SPLITS = {
    "valid": "val", "validation": "val", "validating": "val", "evaluation": "eval", "testing": "test",
    "training": "train", "trn": "train", "tst": "test",
}  # fmt: skip
_SPLIT_WORDS = frozenset({"train", "val", "test", "eval", "dev", *_SPLITS})
_SHOWN = lazy_pattern(
    r"loss|acc|lr|learning_rate|ppl|perplexity|norm|reward|error|img|images|tokens|psnr|wer|bleu",
    re.IGNORECASE,
)
_GAN = lazy_pattern(r"[GDgd](?:_[A-Za-z])?")
_SPLIT = lazy_pattern(
    r"(?<![\w-])(train|val|valid|validation|validating|test|testing|eval|evaluation|dev|cv)(?![./\w-])"
)
_LOGGER = lazy_pattern(
    r".{0,80}?\b(?:info|debug)\b(?::[\w.-]{1,60}:|\s{0,8}\|\s[\w.]{1,60}:[\w<>.]{1,60}:\d{1,6}\b|\]?(?=\s))"
)
_TRAINING = lazy_pattern(r"(?<![a-z])train(?:ing)?(?![a-z])(?!\.py)")
_SECOND = lazy_pattern(r" (\d{1,9}\.\d{1,20})(?![\w.])")
# Words before a name that are no part of it.
_STOP_WORDS = frozenset({
    "info", "debug", "warning", "error", "with", "and", "the", "is", "done", "got", "batch", "step", "steps",
    "epoch", "iter", "iteration", "at", "of", "for", "in", "set", "a", "on", "root", "average", "completed",
    "complete", "master", "main", "stdout", "log", "worker", "rank",
})  # fmt: skip
_WORDS = lazy_pattern(r"[A-Za-z][\w.&-]*")
_ENDS_LOSSES = lazy_pattern(r"loss(?:es)?\b[^,;:{}\[\]]{0,40}[:=-]?\s{0,4}$", re.IGNORECASE)
_ENDS_NAME = lazy_pattern(r"""[A-Za-z_]["']?\s?[:=]?\s?$""")


class Pair(NamedTuple):
    """A scalar as printed, and what it is."""

    name: str
    value: float
    is_loss: bool


@lru_cache(4096)
def split_of(name: str) -> str:
    """Return `train`, `val`, `test`, `eval` or `dev` if a name holds one, else ""."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((_SPLITS.get(word, word) for word in words if word in _SPLIT_WORDS), "")


@lru_cache(4096)
def _is_loss(name: str) -> bool:
    return (
        bool(LOSS.search(name)) and not _NO_LOSS.search(name) and not _NO_LOSS.search(name.replace("_", " "))
    )


@lru_cache(4096)
def is_shown(name: str) -> bool:
    """Return True for names of scalars that are worth a curve."""
    return bool(_SHOWN.search(name)) and not name.lower().startswith("best")


@lru_cache(4096)
def _worth(name: str) -> int:
    """Return 0 for names of no interest, 1 for scalars, 2 for those with a split of the data before them."""
    low = name.lower()
    if "loss" in low or "acc" in low or low in _SPLIT_WORDS or low == "total":
        return 2
    return int(bool(is_shown(name) or OTHER_LOSS.search(name) or _GAN.fullmatch(name)))


def pairs_in(text: str, *, has_place: bool, follows_place: bool = False) -> list[Pair]:
    """Return the scalars of a line; a `loss/` before a name marks a loss that is named otherwise.

    Args:
        text: The line.
        has_place: The line names a position. If not, `loss 0.5` may be prose.
        follows_place: An earlier line named one.
    """
    text = text.replace("ross entropy", "ross_entropy")
    if "\u2019" in text:
        text = text.replace("\u2018", "'").replace("\u2019", "'")
    pairs = list(_named(text, has_place, follows_place))
    if '"value"' in text and (record := _RECORD.search(text)):
        pairs = [Pair(record[1], float(record[2]), is_loss=True)]
    if not any(pair.is_loss for pair in pairs):
        gan = [pair for pair in pairs if _GAN.fullmatch(pair.name)]
        has_other = any(OTHER_LOSS.search(pair.name) for pair in pairs)
        pairs = [
            Pair(f"loss/{each.name}", each.value, is_loss=True)
            if OTHER_LOSS.search(each.name)
            or (has_other and each.name == "total")
            or (len(gan) > 1 and each in gan and gan[0].name[0] != gan[1].name[0])
            else each
            for each in pairs
        ]
        if not any(pair.is_loss for pair in pairs) and (unnamed := re.search(_UNNAMED, text)):
            digits = unnamed[1] or unnamed[2] or unnamed[3] or unnamed[4]
            if (has_place or not digits.isdecimal()) and not _NO_LOSS.search(
                text[max(0, unnamed.start() - 24) : unnamed.end()].replace("_", " ")
            ):
                pairs.append(Pair("loss/objective" if unnamed[2] else "loss", float(digits), is_loss=True))
    return [pair for pair in pairs if pair.is_loss or is_shown(pair.name)]


def _named(text: str, has_place: bool, follows_place: bool) -> Iterator[Pair]:
    low = ""
    end, opened, context, line_split, is_reversed, has_loss = 0, -1, "", "", False, False
    is_nested = "{" in text or "oss[" in text
    for match in _PAIR.finditer(text):
        name, spaces, digits = match.groups()
        start, begin, end = match.start(), end, match.end()
        worth = _worth(name)
        if not worth and not is_nested:
            continue
        gap = text[begin:start]
        if is_nested and ("{" in gap or "[" in gap):
            opened, context = start, ""
        elif is_nested and ("}" in gap or "]" in gap):
            opened, context = -1, ""
        if not worth and opened < 0:
            continue
        is_lone = (follows_place and digits[-1:] != ".") or digits.partition(".")[2][2:].isdecimal()
        if spaces and not has_place and not (is_lone and _stands_alone(text, start, end)):
            continue
        # Tacotron prints a step between a name and its value.
        if spaces and digits.isdecimal() and (second := _SECOND.match(text, end)) and "oss" in name:
            digits = second[1]
        value = float(digits.replace(",", "") if "," in digits else digits)
        if opened == start:
            context = _context(text, start, gap)
        words = _qualifiers(gap) if worth == 2 else []
        split_word = name.lower()
        if split_word in _SPLIT_WORDS:
            if words and words[-1].lower() in ("loss", "losses"):
                words, is_reversed = [], True
            if is_reversed:
                name = f"{_SPLITS.get(split_word, split_word)}_loss"
        if words:
            name = "_".join((*words, name)).lower()
        if context:
            name = context if name == "loss" and LOSS.search(context) else f"{context}/{name}"
        name = name.strip("'")
        is_loss = _is_loss(name)
        if is_loss and not has_loss:
            has_loss = True
            low = low or text.lower()
            line_split = "" if split_of(name) else _line_split(low[:start])
        if line_split and worth == 2 and not split_of(name):
            name = f"{line_split}_{name}"
        yield Pair(name, value, is_loss)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return True if no sentence goes on around a name and its value."""
    words = re.split(r"[:|,\]>-]", text[:start])[-1].split()
    return (
        len(words) < 3
        and re.match(r"\]?\s*(?:$|[,|│;]|\s{2}|\w+ [-+]?\d|\(\s*[-\d])", text[end:]) is not None
    )


def _context(text: str, start: int, gap: str) -> str:
    """Return the name before the bracket that opens at `start`, if it tells about losses or a split."""
    heads = re.split(r"[\[{]", text[max(0, start - 60) : start])
    head = heads[-2] if len(heads) > 1 else ""
    if _NO_LOSS.search(head):
        return ""
    words = _WORDS.findall(head)
    if words and _ENDS_NAME.search(head) and (LOSS.search(words[-1]) or split_of(words[-1])):
        return str(words[-1])
    return "losses" if gap.rstrip("'\"").endswith(("{", "[")) and _ENDS_LOSSES.search(head) else ""


def _qualifiers(gap: str) -> list[str]:
    """Return up to two words just before a name that belong to it: `train` of `train loss`."""
    words: list[str] = []
    for word in reversed(gap[-48:].split(" ")[:-1] if gap.endswith(" ") else []):
        if word[-1:] == "." and word[:-1].lower() in _SPLIT_WORDS:
            word = word[:-1]  # `Val. Loss`
        if not _WORDS.fullmatch(word) or word[-1] == "." or _is_stop_word(word) or len(words) == 2:
            # `[D loss: 0.5]`
            if word[:1] in "[(\"'" and _WORDS.fullmatch(word[1:]) and len(words) < 2:
                words.insert(0, word[1:])
            break
        words.insert(0, _SPLITS.get(word.lower(), word))
    return words


def _is_stop_word(word: str) -> bool:
    return word.lower().rstrip("0123456789") in _STOP_WORDS


def _line_split(before: str) -> str:
    """Return the split that the text before the first loss names, unless it is about training."""
    # The name of a logger says nothing about the data.
    logger = _LOGGER.match(before) if "info" in before or "debug" in before else None
    before = before[logger.end() :] if logger else before
    found = _SPLIT.findall(before)
    if not found or _TRAINING.search(before):
        return ""
    return _SPLITS.get(found[-1], "val" if found[-1] == "cv" else found[-1])


def is_about_training(text: str) -> bool:
    """Return True if a line names the training."""
    return bool(_TRAINING.search(text.lower()))


def is_about_evaluation(text: str) -> bool:
    """Return True if a line names a split of the data but not the one for training."""
    return bool(_line_split(text.lower()))


# Source, tracebacks, commands and calls. Each starts with a rare character or where a line starts.
_CODE_START = lazy_pattern(
    r'\s*(?:File "|"""|>>>|//|\+ |usage: |-{1,2}[a-z]'
    r"|(?:import|from|for|if|elif|while|with|class|def|raise|return|assert|print|self|python3?)\b)"
    r'|\s*"(?!(?:train(?:ing)?_|total_|eval_|val(?:idation)?_)?[Ll]oss")[\w./]+": [^\s,{\[]+,?\s*$'
    r"|\s*[\w.\[\]'\"]+ ?[-+*]?= ?[^\s,;|]+\s*(?:#.*)?$|\s{2,}\w+ ?= ?[^\s,;|]+,\s*$"
    r"|\s*[\w.]+ = (?:[\w.]+ [*+/-] |[\[{(])"
)
# `loss=0.5` alone on a line is output; `loss = 0.5` is source, unless it has more digits.
_LONE_VALUE = lazy_pattern(
    r"\s*[\w./-]+=[^\s=]*[^\s=,]\s*"
    r"|[\w ]{1,40}= (?:nan|(?=[-\d]\S*[1-9]\d?\S*\d\d)-?\d+\.\d{3,}\S*)\s*"
)
_CALL = lazy_pattern(
    r"\((?:(?<=print\()|(?<=info\()|(?<=debug\()|(?<=warning\()|(?<=item\()\)"
    r"|(?<=\w\()(?<!Output\()(?<!Metrics\()(?<!Result\()\w+\s?=)"
)
_FORMAT = lazy_pattern(r"%\.\d[fge]|\{[\w.()]*:\.?\d")
_ERROR = lazy_pattern(r"\w(?:Error|Exception): ")
_BEST = lazy_pattern(r"\bbest\b", re.IGNORECASE)
_OPTION = lazy_pattern(r"\s--[a-z]")
_SETTINGS = lazy_pattern(
    r"\b(?:batch_size|weight_decay|num_workers|warmup\w*|seed|dropout|momentum|num_(?:train_)?epochs|max_steps"
    r"|save_steps|eval_steps|logging_steps|output_dir|optimizer|scheduler|hidden_(?:size|dim)|n_layers|epochs"
    r"|data_path|device)\b"
)


def is_source_or_settings(text: str, *, has_place: bool) -> bool:
    """Return True for source code, commands, tracebacks, prose, and dumps of settings."""
    if _CODE_START.match(text):
        return not _LONE_VALUE.fullmatch(text)
    if "(" in text and _CALL.search(text):
        return True
    if ("%." in text or "{" in text) and _FORMAT.search(text):
        return True
    if (": " in text and _ERROR.search(text[:200])) or (" --" in text and _OPTION.search(text)):
        return True
    is_value = has_place and text[-2:-1].isdecimal()
    if text.endswith(".") and not is_value and not any(sign in text for sign in ":=|["):
        return True
    if len(set(_SETTINGS.findall(text))) > (2 if has_place else 1) or (not has_place and _BEST.search(text)):
        return True
    return text.count("True") + text.count("False") > 3
