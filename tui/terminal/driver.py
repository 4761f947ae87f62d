"""How the console drives a real terminal: by Textual's driver, but output never blocks and frames are paced.

`PacedApp` gives every screen a `FrameTimer` in the place of Textual's timer, and runs on `ConsoleDriver`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from rich.text import Text
from textual import events
from textual.app import App, ReturnType
from textual.css.styles import RulesMap
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from tui.terminal import tty_state
from tui.terminal.frame_rate import FrameRate
from tui.terminal.key_queue import KeyQueue, Typed
from tui.terminal.writer import TerminalWriter

FAREWELL_S = 1.0
"""How long a terminal that does not read is waited for when it is handed back."""
_TIMER = "_Screen__update_timer"
"""Where a screen keeps the timer that it paints with; Textual has no public place to set how often."""
_END_OF_FRAME = "\x1b[?2026l"
"""Shows what was written of a frame: its own end may have been dropped."""


class ConsoleDriver(LinuxDriver):
    """Reads keys as Textual does; writes through a `TerminalWriter`: nothing waits for the terminal."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.frame_rate = self.make_frame_rate()
        """When the next frame may be painted."""
        self.writer: TerminalWriter | None = None
        """What is written to; None while the terminal is not ours."""
        self._is_suspended = False
        self._held_back: set[FrameTimer] = set()
        self._context = copy_context()
        tty_state.on_signals(self._leave)
        if isinstance(app, PacedApp):
            app.driver = self

    def make_frame_rate(self) -> FrameRate:
        """Return when frames may be painted on this terminal."""
        return FrameRate(is_remote=tty_state.is_remote())

    def write(self, data: str) -> None:
        """Have something written; nothing is while the terminal is not ours."""
        if self.writer is not None:
            self.writer.write(data)

    def start_application_mode(self) -> None:
        """Take the terminal."""
        if self.writer is None:
            assert sys.__stdout__ is not None
            out = sys.__stdout__
            self.writer = TerminalWriter(out.fileno(), out.encoding, self._on_emptied, self._on_hung_up)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was, before what still waits to be written."""
        if self.writer is not None:
            self.writer.drop()
            self.write(_END_OF_FRAME)
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        """Give the terminal away for a while."""
        super().suspend_application_mode()
        self._is_suspended = True

    def resume_application_mode(self) -> None:
        """Take the terminal again and paint it anew, whatever was done to it meanwhile."""
        if self.writer is not None:  # stopped by a signal that none can catch: who knows what a shell has set
            self.suspend_application_mode()
        if self._is_suspended:
            self._is_suspended = False
            super().resume_application_mode()
            self._call(self._repaint)

    def close(self) -> None:
        """End the output; a terminal that does not read is not waited for."""
        super().close()
        if self.writer is not None:
            self.writer.close(FAREWELL_S)
            self.writer = None

    def process_message(self, message: Message) -> None:
        """Pass on what was typed, having said that somebody waits. Called in the thread that reads."""
        if isinstance(message, events.InputEvent | events.Paste):
            self._call(self._note_press)
        super().process_message(message)

    def hold_back(self, timer: FrameTimer) -> float | None:
        """Return until when a frame must wait for the one before it to be written; None when it need not.

        `arrange` is called once it need not wait any longer. A terminal that is stuck is not waited for:
        what a frame does besides painting has to go on, and the writer drops the frame.
        """
        if self.writer is None or self.writer.is_empty or self.writer.is_stuck:
            return None
        self._held_back.add(timer)
        return self.writer.stuck_at_s

    def _note_press(self) -> None:
        self.frame_rate.press(self._loop.time())

    def _on_emptied(self, took_s: float, is_missing_some: bool) -> None:
        self._call(partial(self._note_emptied, took_s, is_missing_some))

    def _note_emptied(self, took_s: float, is_missing_some: bool) -> None:
        self.frame_rate.write(took_s, self._loop.time())
        if is_missing_some:
            self._repaint()
        held_back, self._held_back = self._held_back, set()
        for timer in held_back:
            timer.arrange()

    def _repaint(self) -> None:
        self._app.refresh(layout=True)

    def _on_hung_up(self) -> None:
        """Do what a hang-up does, also where the kernel has sent its signal to somebody else."""
        os.kill(os.getpid(), signal.SIGHUP)

    def _leave(self, code: int) -> None:
        self._call(partial(self._app.exit, code, code))

    def _call(self, do: Any) -> None:
        """Have something done in the loop, from whatever thread."""
        try:
            self._loop.call_soon_threadsafe(do, context=self._context.copy())
        except RuntimeError:
            if not self._loop.is_closed():
                raise


class FrameTimer:
    """Stands where a screen expects its timer: `resume` when there is something to paint, else `pause`.

    Textual's own timer, slowed by `TEXTUAL_FPS`, knows neither keys nor the terminal. While all of the screen
    changes all the time, a key over SSH (4 frames a second) is seen after 20 ms in the median, with Textual's
    timer after 256 ms; and over a line of 20 KiB/s after 2 s, with Textual's not within 30 s, for behind its
    back frames queue up.
    """

    def __init__(self, screen: Screen[Any], driver: ConsoleDriver) -> None:
        self._screen = screen
        self._driver = driver
        self._is_wanted = False
        self._next: asyncio.TimerHandle | None = None
        self._context: Context | None = None

    def resume(self) -> None:
        """Paint as soon as it may be."""
        if self._context is None:
            self._context = copy_context()
        self._is_wanted = True
        self.arrange()

    def pause(self) -> None:
        """Paint no more, for all is painted."""
        self._is_wanted = False
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def arrange(self) -> None:
        """See anew when to paint: a key may have been pressed since."""
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
        except Exception as error:  # as Textual's timers do: a bug ends the console, loudly
            app._handle_exception(error)


class PacedApp(App[ReturnType]):
    """An app that paints as often as its terminal takes it, and takes keys one after another.

    Without a terminal, as in tests, it paints as any other app.
    """

    driver: ConsoleDriver | None = None
    """What drives the terminal, once there is one."""

    def __init__(self) -> None:
        super().__init__(driver_class=ConsoleDriver)
        self.key_queue = KeyQueue(self, self._hand_on, self.takes_keys)
        """What was typed and has to wait."""

    async def on_event(self, event: events.Event) -> None:
        """Let a key, or a paste, wait until what was typed before it is done with."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.key_queue.put(event)
        else:
            await super().on_event(event)

    async def _hand_on(self, typed: Typed) -> None:
        self.hurry()  # what it does is painted at once, however long it had to wait
        await super().on_event(typed)

    def takes_keys(self) -> bool:
        """Tell whether the screen on top is there."""
        return self.screen.is_mounted

    def hurry(self) -> None:
        """Paint what changes now as if a key had been pressed: somebody waits for it."""
        if self.driver is not None:
            self.driver.frame_rate.press(asyncio.get_running_loop().time())

    def _fatal_error(self) -> None:
        """End with the traceback of a bug, but not with the values at hand: tokens may be among them."""
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
        """Register widgets, as Textual's own, having given each screen its frame timer."""
        if self.driver is not None:
            for widget in widgets:
                if isinstance(widget, Screen):
                    setattr(widget, _TIMER, FrameTimer(widget, self.driver))
                    self.hurry()
        return super()._register(parent, *widgets, before=before, after=after, cache=cache)
