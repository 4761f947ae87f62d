"""Textual driver for real terminals: output never blocks, and frames are paced.

`PacedApp` replaces the timer of every screen by a `FrameTimer`, and runs on `ConsoleDriver`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import Context, copy_context
from functools import partial
from math import inf
from typing import Any

from rich.text import Text
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._compositor import Compositor
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App, ReturnType
from textual.css.styles import RulesMap
from textual.dom import DOMNode
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import Screen, ScreenResultType
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import WorkerFailed

from tui.terminal import tty_state
from tui.terminal.key_queue import KeyQueue, Typed
from tui.terminal.writer import TerminalWriter

# Interval of frames without key presses, on a local terminal.
PERIOD_S = 0.1
# The interval over SSH, and where writes block.
SLOW_PERIOD_S = 0.25
# Changes within this time share a frame, even after a key.
TOGETHER_S = 0.004
# Everything paints at once for this long after a key, because its effect comes in several steps.
PRESS_S = 0.15
# A slow key's first frame is still painted at once within this time.
PATIENCE_S = 2.0
# A terminal that takes longer for one frame is slow.
BLOCKED_S = 0.1
# A slow terminal counts as slow for this long.
RECOVERY_S = 5.0


class FrameRate:
    """Times that determine the next frame."""

    def __init__(self, *, is_remote: bool, period_s: float = PERIOD_S) -> None:
        self._period_s = SLOW_PERIOD_S if is_remote else period_s
        self._pressed_s = self._painted_s = self._blocked_s = -inf

    def press(self, now_s: float) -> None:
        """Record a key press."""
        self._pressed_s = now_s

    def paint(self, now_s: float) -> None:
        """Record a painted frame."""
        self._painted_s = now_s

    def write(self, took_s: float, now_s: float) -> None:
        """Record the time that the terminal took for a write."""
        if took_s > BLOCKED_S:
            self._blocked_s = now_s

    def period_s(self, now_s: float) -> float:
        """Return the shortest interval between two frames without key presses."""
        is_slow = now_s - self._blocked_s < RECOVERY_S
        return max(self._period_s, SLOW_PERIOD_S) if is_slow else self._period_s

    def due_s(self, now_s: float) -> float:
        """Return the time at which a change of now is to be painted."""
        since_press_s = now_s - self._pressed_s
        is_unanswered = self._painted_s < self._pressed_s and since_press_s < PATIENCE_S
        if since_press_s < PRESS_S or is_unanswered:
            return now_s + TOGETHER_S
        return max(now_s + TOGETHER_S, self._painted_s + self.period_s(now_s))


# Timeout for a terminal that does not read when the console exits.
FAREWELL_S = 1.0
# A screen's private attribute for its paint timer; Textual has no public way to set the rate.
_TIMER = "_Screen__update_timer"
# Ends synchronised output: the end of the last frame may have been dropped.
_END_OF_FRAME = "\x1b[?2026l"


# Within a paste: a key as CSI u or modifyOtherKeys, as tmux sends line ends and tabs, or any other sequence.
_PASTED = re.compile(
    r"\x1b\[(?:(?P<code>\d{1,7})(?:;(?P<bits>\d{0,3}))?u|27;(?P<bits2>\d{1,3});(?P<code2>\d{1,7})~)"
    r"|\x1b(?:\[[0-?]*[ -/]*[@-~])?"
)
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")


def _pasted_text(found: re.Match[str]) -> str:
    code = int(found["code"] or found["code2"] or 0)
    has_ctrl = (int(found["bits"] or found["bits2"] or 1) - 1) & 4
    text = chr(code & 31 if has_ctrl and 64 <= code < 128 else code) if code <= sys.maxunicode else ""
    return text if text.isprintable() or text in "\r\n\t" else ""


class KeyParser(XTermParser):
    """Parser that splits esc and a key in one packet, and makes no keys of what is within a paste."""

    _is_pasting = False
    # Sent before: the end of a marker outside of a paste, or a torn sequence within one.
    _left = ""

    def feed(self, data: str) -> Iterable[Message]:
        """Parse what the terminal sends, without the sequences that are within a paste."""
        return super().feed(found) if (found := "".join(self._without_pasted_keys(data))) or not data else ()

    def _without_pasted_keys(self, data: str) -> Iterator[str]:
        while data:
            marker = BRACKETED_PASTE_END if self._is_pasting else BRACKETED_PASTE_START
            head, mark, rest = (self._left + data).partition(marker)
            if self._is_pasting:
                torn = None if mark else _TORN.search(head)
                self._left = torn[0] if torn else ""
                yield _PASTED.sub(_pasted_text, head.removesuffix(self._left)) + mark
            else:
                yield data if not mark else data.removesuffix(rest)
                self._left = "" if mark else head[1 - len(marker) :]
            self._is_pasting ^= bool(mark)
            data = rest

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        is_typed = len(sequence) == 2 and isinstance(ANSI_SEQUENCES_KEYS.get(sequence), str)
        # The start of a sequence that a slow line has torn apart is not split: esc would leave the view.
        if is_typed or (alt and sequence not in "[O"):
            yield events.Key("escape", "\x1b")
            sequence, alt = sequence[-1], False
        yield from super()._sequence_to_key_events(sequence, alt)


setattr(linux_driver, "XTermParser", KeyParser)  # noqa: B010  # the driver makes its parser by this name


class ConsoleDriver(LinuxDriver):
    """Textual's driver with output through a `TerminalWriter`, so nothing waits for the terminal."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.frame_rate = self.make_frame_rate()
        self.writer: TerminalWriter | None = None
        """None while the terminal is not ours."""
        self._is_suspended = False
        self._held_back: set[FrameTimer] = set()
        self._context = copy_context()
        tty_state.on_signals(self._leave)
        if isinstance(app, PacedApp):
            app.driver = self

    def make_frame_rate(self) -> FrameRate:
        """Return the frame rate for this terminal."""
        return FrameRate(is_remote=tty_state.is_remote())

    def write(self, data: str) -> None:
        """Queue data for writing; dropped while the terminal is not ours."""
        if self.writer is not None:
            self.writer.write(data)

    def start_application_mode(self) -> None:
        """Take over the terminal."""
        if self.writer is None:
            assert sys.__stdout__ is not None
            out = sys.__stdout__
            self.writer = TerminalWriter(out.fileno(), out.encoding, self._on_emptied, self._on_hung_up)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Restore the terminal, dropping pending output."""
        if self.writer is not None:
            self.writer.drop()
            self.write(_END_OF_FRAME)
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        """Release the terminal temporarily."""
        super().suspend_application_mode()
        self._is_suspended = True

    def resume_application_mode(self) -> None:
        """Take over the terminal again and repaint, whatever happened to it meanwhile."""
        if self.writer is not None:  # stopped by a signal that none can catch: who knows what a shell has set
            self.suspend_application_mode()
        if self._is_suspended:
            self._is_suspended = False
            super().resume_application_mode()
            self._call(self._repaint)

    def close(self) -> None:
        """Close the output, without waiting for a terminal that does not read."""
        super().close()
        if self.writer is not None:
            self.writer.close(FAREWELL_S)
            self.writer = None

    def process_message(self, message: Message) -> None:
        """Record the time of input and pass it on. Called in the reader thread."""
        if isinstance(message, events.InputEvent | events.Paste):
            self._call(self._record_press)
        super().process_message(message)

    def hold_back(self, timer: FrameTimer) -> float | None:
        """Return the time until which a frame must wait for the previous one; None if it need not.

        `arrange` is called as soon as it may paint. A stuck terminal is not waited for: the rest of a
        frame's work must go on, and the writer drops the frame.
        """
        if self.writer is None or self.writer.is_empty or self.writer.is_stuck:
            return None
        self._held_back.add(timer)
        return self.writer.stuck_at_s

    def _record_press(self) -> None:
        self.frame_rate.press(self._loop.time())

    def _on_emptied(self, took_s: float, is_missing_some: bool) -> None:
        self._call(partial(self._record_emptied, took_s, is_missing_some))

    def _record_emptied(self, took_s: float, is_missing_some: bool) -> None:
        self.frame_rate.write(took_s, self._loop.time())
        if is_missing_some:
            self._repaint()
        held_back, self._held_back = self._held_back, set()
        for timer in held_back:
            timer.arrange()

    def _repaint(self) -> None:
        self._app.refresh(layout=True)

    def _on_hung_up(self) -> None:
        # As on hang-up, in case the kernel has sent SIGHUP to another process.
        os.kill(os.getpid(), signal.SIGHUP)

    def _leave(self, code: int) -> None:
        self._call(partial(self._app.exit, code, code))

    def _call(self, do: Any) -> None:
        # Callable from any thread.
        try:
            self._loop.call_soon_threadsafe(do, context=self._context.copy())
        except RuntimeError:
            if not self._loop.is_closed():
                raise


class FrameTimer:
    """Replacement for a screen's paint timer: `resume` when there is something to paint, else `pause`.

    Textual's own timer, slowed by `TEXTUAL_FPS`, considers neither keys nor the terminal. With a
    constantly changing screen over SSH (4 frames per second), a key takes effect after 20 ms in the
    median instead of 256 ms; over a line of 20 KiB/s after 2 s instead of more than 30 s, because
    frames queue up behind Textual's timer.
    """

    def __init__(self, screen: Screen[Any], driver: ConsoleDriver) -> None:
        self._screen = screen
        self._driver = driver
        self._is_wanted = False
        self._next: asyncio.TimerHandle | None = None
        self._context: Context | None = None

    def resume(self) -> None:
        """Paint as soon as the frame rate permits."""
        if self._context is None:
            self._context = copy_context()
        self._is_wanted = True
        self.arrange()

    def pause(self) -> None:
        """Stop painting: everything is painted."""
        self._is_wanted = False
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def arrange(self) -> None:
        """Reschedule the next frame: a key may have been pressed since."""
        if self._is_wanted:
            loop = asyncio.get_running_loop()
            self._arrange_at(self._driver.frame_rate.due_s(loop.time()))

    def _arrange_at(self, when_s: float) -> None:
        if self._next is not None:
            if self._next.when() <= when_s:
                return
            self._next.cancel()
        loop = asyncio.get_running_loop()
        self._next = loop.call_at(when_s, self._paint, context=self._context)

    def _paint(self) -> None:
        self._next = None
        app = self._screen.app
        if not self._is_wanted or not app.is_running:
            return
        if (until_s := self._driver.hold_back(self)) is not None:
            self._arrange_at(until_s)
            return
        self._driver.frame_rate.paint(asyncio.get_running_loop().time())
        try:
            self._screen._on_timer_update()
        except Exception as error:
            # What cannot be drawn cannot show a report either.
            App._handle_exception(app, error)


class RowsCompositor(Compositor):
    """Renders of each widget only the rows that changed; Textual's renders all rows of most widgets."""

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        rows = Region(0, crop.y, self.size.width, crop.height) if crop else self.size.region
        for widget, (region, clip) in list(self.visible_widgets.items()):
            if shown := region.intersection(clip).intersection(rows):
                strips = widget.render_lines(shown.translate(-region.offset))
                yield region, shown, strips
                # They are divided by now, and one that fits is kept as its own part. Only a full collection
                # of garbage, of which there are few, would free it.
                for strip in strips:
                    strip._divide_cache.clear()


class PacedScreen(Screen[ScreenResultType]):
    """Screen that updates the styles of its widgets and its layout once when it opens, not three times."""

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        event.refresh_styles = False  # each widget got its styles as it was mounted

    def _screen_resized(self, size: Size) -> None:
        if size != self._compositor.size:
            super()._screen_resized(size)


class PacedApp(App[ReturnType]):
    """App that paints as fast as its terminal permits, and handles keys one after another.

    Without a terminal, as in tests, it paints like any other app.
    """

    driver: ConsoleDriver | None = None
    """None without a terminal."""
    survives_bugs: bool = True
    """Report unexpected exceptions and go on; tests let them end the app."""

    def __init__(self) -> None:
        super().__init__(driver_class=ConsoleDriver)
        self.key_queue = KeyQueue(self, self._hand_on, self.accepts_keys)

    def _handle_exception(self, error: Exception) -> None:
        # Called by Textual for exceptions of workers, timers and message handlers. Before the app runs,
        # there is nothing to go on with, so it ends.
        if not self.survives_bugs or not self._running or self._exit:
            super()._handle_exception(error)
            return
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.report_bug(cause if isinstance(cause, Exception) else error)

    def report_bug(self, error: Exception) -> None:
        """Show an unexpected failure to the user."""
        super()._handle_exception(error)

    async def _dispatch_message(self, message: Message) -> None:
        await self._dispatch(super()._dispatch_message, message)

    async def _dispatch(self, dispatch: Callable[[Message], Awaitable[None]], message: Message) -> None:
        try:
            await dispatch(message)
        except Exception as error:
            # Textual would end the widget's message loop next, and with it everything that the widget does.
            if not self.survives_bugs:
                raise
            self._handle_exception(error)

    async def on_event(self, event: events.Event) -> None:
        """Queue keys and pastes until earlier ones have been handled."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.key_queue.put(event)
        else:
            await super().on_event(event)

    async def _hand_on(self, typed: Typed) -> None:
        self.paint_soon()  # what it does is painted at once, however long it had to wait
        await super().on_event(typed)

    def accepts_keys(self) -> bool:
        """Return True if the top screen is mounted."""
        return self.screen.is_mounted

    @property
    def is_idle(self) -> bool:
        """True if no key is queued, no message is being handled, and everything is drawn."""
        return self.key_queue.is_empty and not (self.screen_stack and self.screen._layout_required)

    def paint_soon(self) -> None:
        """Paint upcoming changes at once, as after a key press."""
        if self.driver is not None:
            self.driver.frame_rate.press(asyncio.get_running_loop().time())

    def _load_screen_css(self, screen: Screen[Any]) -> None:
        # Textual would parse all other stylesheets again, too, and style the screen below.
        if unread := [path for path in screen.css_path if not self.stylesheet.has_source(str(path))]:
            self.stylesheet.read_all(unread)
            self.stylesheet.parse()
            self.stylesheet.apply(screen)

    def _fatal_error(self) -> None:
        # Without the values of local variables: they may include tokens.
        self.bell()
        self._exit_renderables.append(Text(traceback.format_exc().rstrip()))
        self._close_messages_no_wait()

    def _register(
        self,
        parent: DOMNode,
        *widgets: Widget,
        before: int | None = None,
        after: int | None = None,
        cache: dict[tuple[Any, ...], RulesMap] | None = None,
    ) -> list[Widget]:
        # Gives each new screen its frame timer.
        for widget in widgets:
            if not widget.is_attached:  # one that only moves is registered again
                setattr(widget, "_dispatch_message", partial(self._dispatch, widget._dispatch_message))  # noqa: B010
            if isinstance(widget, Screen):
                widget._compositor = RowsCompositor()
                # Its classes for the terminal's size come first: later, all its widgets are styled again.
                both = widget.HORIZONTAL_BREAKPOINTS, widget.VERTICAL_BREAKPOINTS
                for cells, each in zip(self.size, both, strict=True):
                    widget.add_class(*widget._get_breakpoint_classes(cells, each or []), update=False)
                if self.driver is not None:
                    setattr(widget, _TIMER, FrameTimer(widget, self.driver))
                    self.paint_soon()
        return super()._register(parent, *widgets, before=before, after=after, cache=cache)
