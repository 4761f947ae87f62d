"""Steps and scalars parsed from the output of training scripts of any framework."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from k8s.logs.training_tables import TableColumns, bare_point, columns_in, listed_point, row_in
from k8s.logs.training_tokens import (
    NUMBER,
    Pair,
    RunPosition,
    heading_epoch,
    is_about_evaluation,
    is_about_training,
    is_source_or_settings,
    pairs_in,
    place_in,
    split_of,
)
from k8s.text.lazy_pattern import lazy_pattern
from k8s.text.sanitize import log_text

# Limit per line, or per part between carriage returns.
LONGEST_CHARS = 2000
LARGEST_STEP = 10**18
# Limit of parts between carriage returns, from the end of a line.
MOST_PARTS = 64
# Lines between two rows of a table; a header reaches no farther.
MOST_BETWEEN_ROWS = 200

# `Iter #0: 205.5 img/sec per GPU`: Horovod's synthetic benchmark.
_BENCHMARK = lazy_pattern(rf"\bIter #(\d{{1,9}}): ({NUMBER}) (img/sec per \S{{1,20}})")
_SHARE = lazy_pattern(r"\b(?:accuracy|acc):? (\d{1,12})/(\d{1,12}) \(", re.IGNORECASE)
_BACKSPACES = lazy_pattern(rb"\x08+")
# Control characters as syslog writes them.
_ESCAPED = lazy_pattern(rb"#(011|015|033)")
_WHOLE_LOSS = lazy_pattern(
    r"(?:^|[/.])(?:(?:train|avg|average|mean|running|overall|total|tot)_)*loss$|_total_loss$|loss[/_]total$",
    re.IGNORECASE,
)
_PLAIN_LOSS = lazy_pattern(
    r"(?:(?:train|training|avg|average|mean|running|overall|total|tot)_)*loss", re.IGNORECASE
)
_PLAIN_WORDS = frozenset({
    "train", "training", "trainer", "total", "avg", "av", "average", "mean", "running", "epoch", "batch",
    "step", "lm", "loss", "losses", "logloss", "main", "reduced", "overall", "current", "objective",
})  # fmt: skip

Scalars = tuple[tuple[str, float], ...]

# Names in other languages, by their English ones; the first match counts. Those of counters need a number.
_NAMES = {
    "loss": r"损失(?!函数)(?:值)?|損失(?!関数|函數)(?:値|值)?|손실(?!\s?함수)(?:값)?"
    r"|лосс|(?:функци[ия] )?потер(?:и|я|ь)\b"
    r"|(?<![^\W_])(?:verlust|p[ée]rdida|perte|perda|perdita)s?\b",
    "train loss": r"(?<![^\W_])trainingsverlust\b",
    "val loss": r"(?<![^\W_])validierungsverlust\b",
    "test loss": r"(?<![^\W_])testverlust\b",
    "total loss": r"(?<![^\W_])gesamtverlust\b",
    "train": r"训练集?|訓練|学習(?!率)|학습(?!률)|훈련|(?:на )?обучени[еяи]|обучающ\w+|entrenamiento"
    r"|entra[iî]nement|treino|treinamento"
    r"|addestramento|apprentissage",
    "val": r"验证集?|驗證集?|検証|검증|(?:на )?валидаци[ияю]|валидационн\w+|validaci[óo]n|valida[çc][ãa]o"
    r"|validazione|validierung",
    "test": r"测试集?|測試集?|テスト|테스트|(?:на )?тест\w{0,5}\b|prueba|teste\b",
    "avg": r"平均|평균|средн\w+|durchschnittliche[rns]?|moyenne|promedi[oa]|m[ée]dia\b",
    "total": r"总|總|総|общ(?:ая|ие|ий)",
    "best": r"最佳|最好|最优|最優|最小|最低|最高|최고|최저"
    r"|лучш\w+|mejor|meilleure?|melhor|migliore|beste[rns]?\b",
    "previous": r"上一|前回|이전",
    "current": r"当前|當前|現在|현재|текущ\w+|actual\b",
    "target": r"目标|目標",
    "weight": r"权重|權重|重み|가중치|вес\b",
    "coef": r"系数|係數|係数",
    "acc": r"准确率|準確率|正确率|正解率|정확도|точность|genauigkeit|exactitude|acur[áa]cia",
    "lr": r"学习率|學習率|学習率|학습률",
    "batch": r"批次|バッチ|배치",
    "epoch": r"(?:轮次|轮数|輪次|エポック|에포크|에폭|эпоха|epoche|[ée]poca|[ée]poque)(?=\W{0,8}\d)",
    "step": r"(?:步骤|步驟|步数|步數|步|ステップ|스텝|단계|шаг|schritt|paso|passo|[ée]tape)(?=\W{0,8}\d)",
    "iter": r"(?:迭代(?:次数|次數)?|反復|반복"
    r"|итерация|iteraci[óo]n|it[ée]ration|itera[çc][ãa]o)(?=\W{0,8}\d)",
}
_WORDS_OF = tuple(_NAMES)
# Compiled by `re` for the first such line, and kept there.
_FOREIGN = "(?i)" + "|".join(f"({pattern})" for pattern in _NAMES.values())
# `第3轮`, `第 3/10 エポック`, `第200步`.
_ORDINAL = lazy_pattern(
    r"第\s?(\d{1,12}(?:\s?/\s?\d{1,12})?)\s?(?:个|個)?(?:(轮|輪|エポック|epoch)|步|次迭代|ステップ)"
)
# `loss de train`: in Romance languages and Russian the split follows.
_SPLIT_BEHIND = lazy_pattern(
    r"\bloss (?:d[^\w\s]|(?:de|du|en|di|do|da|la|na)\s){0,2}\s?(train|val(?:idation)?|test)\b"
)
# `分类 loss`: one of several, whatever the word means.
_PART = lazy_pattern(r"(?<=[^\W\d_a-zA-Z]) loss\b")
_AVERAGE_BEHIND = lazy_pattern(r"\bloss (avg|total)\b")
# Full-width signs.
_PUNCTUATION = str.maketrans(
    "\uff08\uff09\uff0c\uff1a\uff1b\uff1d\uff5c\u3001\u3002\u3010\u3011", "(),:;=|,.[]"
)
_SURPLUS_SPACE = lazy_pattern(r" (?=[:,\"'\])])|(?<=[\"'(\[]) | {2,}(?=\S)")
# What a line needs to be in another language: those in ASCII, the others in UTF-8.
_ASCII_SIGNS = ("verlust", "perte", "perd", "epoca", "schritt", "paso ")
_SIGNS = lazy_pattern(
    "损失|損失|손실|轮|輪|步|迭代|エポック|ステップ|에포크|에폭|스텝|Потер|потер|Лосс|лосс|Эпоха|эпоха|Шаг|шаг"
    "|é|É|erlust|[Pp]ert|[Pp]erd|poca|chritt".encode()
)
_DIGIT = lazy_pattern(rb"[0-9]")


def _in_english(raw: bytes) -> str:
    # Cells of tables stay apart by more than the spaces within them.
    text = log_text(raw[: 4 * LONGEST_CHARS].replace(b"\t", b"   "), cap=LONGEST_CHARS)
    if text.isascii():
        low = text.lower()
        if not any(sign in low for sign in _ASCII_SIGNS):
            return text
    elif not _SIGNS.search(raw[: 4 * LONGEST_CHARS]):
        return text
    text = _ORDINAL.sub(
        lambda found: f" {'epoch' if found[2] else 'step'} {found[1]} ", text.translate(_PUNCTUATION)
    )
    english = re.sub(_FOREIGN, lambda found: f" {_WORDS_OF[(found.lastindex or 1) - 1]} ", text)
    english = _SURPLUS_SPACE.sub(lambda found: " " * (len(found[0]) > 1), english)
    return _PART.sub(" part loss", _AVERAGE_BEHIND.sub(r"\1 loss", _SPLIT_BEHIND.sub(r"\1 loss", english)))


def _is_worth_reading(raw: bytes) -> bool:
    # Several times faster than one pattern, and than searching bytes.
    low = raw[: 4 * LONGEST_CHARS].decode("latin-1").lower()
    return (
        "loss" in low or "epoch" in low or "step" in low or "iter" in low or "acc" in low or "%|" in low
        or "it/s" in low or "s/it" in low or "batch" in low or "nll" in low or "mse" in low or "err" in low
        or "obj" in low or "cost" in low or "entropy" in low or "learn:" in low or " avg," in low
        or "'s " in low or "e-0" in low or "train" in low or "l1:" in low or "round " in low
        or "verlust" in low or "perte" in low or "perd" in low or "epoca" in low or "schritt" in low
        or "paso " in low
        or (raw[:1].isdigit() and len(raw) < 40)
        or (not raw.isascii() and bool(_DIGIT.search(raw) and _SIGNS.search(raw[: 4 * LONGEST_CHARS])))
    )  # fmt: skip


def step_in(raw: bytes) -> int | None:
    """Return the step, or else the epoch, that a line names; progress bars and evaluations name none."""
    if not _is_worth_reading(raw):
        return None
    place = place_in(_in_english(raw))
    if place is None or place.is_bar or (place.total and place.epoch is not None and not place.is_global):
        return None
    return place.epoch if place.step is None else place.step


class TrainingPoint(msgspec.Struct, frozen=True):
    """Scalars of one step."""

    step: int
    """As printed; counted over all epochs if a script counts within them, in samples, batches or steps."""
    scalars: Scalars
    """The losses of training come first."""
    is_bar: bool = False


class TrainingLineReader:
    """Parser of one rank's lines, in order; scalars without a step belong to the last one."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._epoch: int | None = None  # of the last heading
        self._epoch_steps = 0
        self._counts_from_0 = False
        # Steps of earlier epochs, where a script counts within epochs and prints no total.
        self._base = self._index = 0
        self._index_epoch = -1
        self._longest_bar = self._bar_step = self._last_bar_step = self._unplaced = 0
        # Starts of a bar since the last line that names a step, and such lines that followed one start each.
        self._bar_starts = self._lines_with_bars = 0
        self._line_step: int | None = None
        self._lists_losses = False
        self._columns: TableColumns | None = None
        self._lines_since_row = 0

    @property
    def has_inner_bars(self) -> bool:
        """Return True if each step has a bar of its own; lines tell the steps, so the bars give no points."""
        return self._lines_with_bars > 2

    def read(self, raw: bytes) -> list[TrainingPoint]:
        """Return the points of a line, which may hold several bars separated by carriage returns."""
        if self._columns is None and not self._lists_losses and not _is_worth_reading(raw):
            return []
        if b"\x08" in raw:
            raw = _BACKSPACES.sub(b"\r", raw)
        if b"#0" in raw:
            raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), raw)
        parts = raw.rsplit(b"\r", MOST_PARTS)[-MOST_PARTS:] if b"\r" in raw else [raw]
        return [point for part in parts if part for point in self._points(_in_english(part))]

    def _points(self, text: str) -> Iterator[TrainingPoint]:
        if benchmark := _BENCHMARK.search(text) if "img/sec" in text else None:
            yield TrainingPoint(int(benchmark[1]), ((benchmark[3], float(benchmark[2])),))
            return
        if self._columns is not None and (row := self._row(text)) is not None:
            yield row
            return
        if self._lists_losses and (listed := listed_point(text)):
            yield self._point(*listed)
            return
        self._lists_losses = text.rstrip().endswith(":") and "loss" in text.lower()
        place = place_in(text)
        if place is not None and place.is_bar:
            at = place.step or 0
            self._bar_starts += at < self._last_bar_step or at == self._last_bar_step == place.total
            self._last_bar_step = at
            if self.has_inner_bars:
                return
        if place is not None and place.is_bar and place.total and place.total >= self._longest_bar:
            self._longest_bar, self._bar_step = place.total, place.step or 0
        pairs = self._pairs(text, place)
        has_loss = any(pair.is_loss for pair in pairs)
        if not has_loss and (bare := bare_point(text) if ", {" in text or text[-1:].isdecimal() else None):
            yield self._point(*bare)
            return
        if not has_loss and not any("acc" in pair.name.lower() for pair in pairs):
            if place is not None:
                self._remember(text, place)
            elif columns := columns_in(text):
                self._columns, self._lines_since_row = columns, 0
            return
        if is_source_or_settings(text, has_place=place is not None):
            return
        if has_loss and place is not None and place.step is not None and not place.is_bar:
            advanced = place.step - (self._line_step or 0)
            self._lines_with_bars += 0 < advanced <= 2 * self._bar_starts
            self._line_step, self._bar_starts = place.step, 0
        step = self._step_of(text, place, pairs)
        if step is not None and step <= LARGEST_STEP:
            values: dict[str, float] = {}
            for pair in sorted(pairs, key=_order):
                values.setdefault(pair.name, pair.value)
            yield TrainingPoint(step, tuple(values.items()), is_bar=place is not None and place.is_bar)

    def _pairs(self, text: str, place: RunPosition | None) -> list[Pair]:
        pairs = pairs_in(text, has_place=place is not None, follows_place=self._step is not None)
        if share := _SHARE.search(text) if "/" in text and "cc" in text else None:
            split = next((found for pair in pairs if pair.is_loss and (found := split_of(pair.name))), "")
            pairs.append(
                Pair(f"{split}_accuracy".lstrip("_"), int(share[1]) / max(1, int(share[2])), is_loss=False)
            )
        return pairs

    def _point(self, step: int, *pairs: Pair) -> TrainingPoint:
        self._step = min(step, LARGEST_STEP)
        return TrainingPoint(self._step, tuple((pair.name, pair.value) for pair in sorted(pairs, key=_order)))

    def _row(self, text: str) -> TrainingPoint | None:
        row = row_in(text, self._columns) if self._columns else None
        if row is None:
            self._lines_since_row += 1
            if self._lines_since_row > MOST_BETWEEN_ROWS:
                self._columns = None
            return None
        self._lines_since_row = 0
        if row[0].step is None:
            self._unplaced += 1
            return self._point(self._unplaced, *row[1])
        return self._point(self._place_step(row[0]), *row[1])

    def _remember(self, text: str, place: RunPosition) -> None:
        if place.step is not None:
            is_short = place.is_bar and (place.total or 0) < self._longest_bar
            if not is_short and not is_about_evaluation(text):
                self._place_step(place)
        elif (epoch := heading_epoch(text)) is not None:
            self._epoch = epoch
            self._counts_from_0 |= epoch == 0
            if not self._epoch_steps:
                self._step = epoch

    def _step_of(self, text: str, place: RunPosition | None, pairs: list[Pair]) -> int | None:
        losses = [pair for pair in pairs if pair.is_loss]
        is_evaluation = all(split_of(pair.name) not in ("", "train") for pair in losses or pairs)
        is_dict = "{" in text and "}" in text
        if place is not None and place.step is None and is_dict and "'epoch': '" in text:
            place = None  # Hugging Face's fraction of an epoch, as a text
        if place is not None and is_evaluation and place.step is not None and (place.total or place.is_bar):
            place = None if place.is_bar or self._step is not None else place
        if place is not None:
            self._step = self._place_step(place)
            return self._step
        if self._longest_bar and is_dict:
            return self._bar_step
        if self._step is not None:
            return self._step
        is_plain = any(
            all(word in _PLAIN_WORDS for word in re.split(r"[^a-z]+", pair.name.lower()) if word)
            for pair in losses
        )
        is_row = text.lstrip()[:1] in ("|", "│")
        is_whole = is_plain or is_dict or is_row or len(losses) > 1 or is_about_training(text)
        is_whole |= text.count(": ") > 3
        if (is_evaluation and not is_dict) or not losses or not is_whole:
            return None
        self._unplaced += 1
        return self._unplaced

    def _place_step(self, place: RunPosition) -> int:
        epoch = self._epoch if place.epoch is None else place.epoch
        self._counts_from_0 |= epoch == 0
        first = 0 if self._counts_from_0 else place.first_epoch
        if place.step is None:
            if self._epoch_steps:
                step = ((place.epoch or 0) + 1 - first) * self._epoch_steps
            else:
                step = (place.epoch or 0) if self._index_epoch < 0 else (self._step or 0)
        elif place.is_global or epoch is None:
            step = place.step
        elif place.total:
            self._epoch_steps = place.total
            step = max(0, epoch - first) * place.total + place.step
        else:
            if epoch > self._index_epoch >= 0 and place.step < self._index:
                self._base += self._index
            self._index, self._index_epoch = place.step, epoch
            step = self._base + place.step
        self._step = step
        return step


def _order(pair: Pair) -> int:
    if not pair.is_loss or split_of(pair.name) not in ("", "train"):
        return 3
    return 2 if not _WHOLE_LOSS.search(pair.name) else int(not _PLAIN_LOSS.fullmatch(pair.name))
