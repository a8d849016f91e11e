"""Interrupts calls at each place where Python could run the handler of a signal, which raises."""

import contextlib
import dis
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mindspore_replay

#: Code that is interrupted: the package, and what holds something for it.
PLACES = (str(Path(mindspore_replay.__file__).parent), contextlib.__file__)


class Interrupt(BaseException):
    """As a handler of Ctrl-C raises it."""


_known: dict[CodeType, tuple[set[int], list[Any]]] = {}


def _parts(code: CodeType) -> tuple[set[int], list[Any]]:
    """Return the instructions after which Python looks for signals, and the parts of the code with a handler."""
    if code not in _known:
        looks = {
            at.offset
            for at in dis.get_instructions(code)
            if at.opname.startswith("CALL") or at.opname in ("JUMP_BACKWARD", "RESUME")
        }
        _known[code] = looks, dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return _known[code]


def _handler(table: list[Any], at: int) -> int:
    return next((entry.target for entry in table if entry.start <= at < entry.end), -1)


class _Tracer:
    def __init__(self, at: int) -> None:
        self.left, self.last = at, dict[FrameType, int]()

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(PLACES):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before, now = self.last.get(frame, -1), frame.f_lasti
            self.last[frame] = now
            looks, table = _parts(frame.f_code)
            # An exception after the last call of a block would seem to come from behind it.
            if before in looks and _handler(table, before) == _handler(table, now):
                self.left -= 1
                if self.left == -1:
                    raise Interrupt
        elif event == "return":
            self.last.pop(frame, None)
        return self


def interrupted(call: Callable[[], object], at: int) -> Interrupt | None:
    """Make a call that is interrupted at a place; return the exception, or ``None`` if it has fewer places."""
    before = sys.gettrace()
    sys.settrace(_Tracer(at))
    try:
        call()
    except Interrupt as error:
        return error
    finally:
        sys.settrace(before)
    return None


def everywhere(
    call: Callable[[], object], most: int, prepare: Callable[[], object] = lambda: None
) -> Iterator[Interrupt]:
    """Interrupt a call at each place, or at so many; yield each exception. It may have to be prepared each time."""
    prepare()
    call()  # what is made at first use is made
    tracer, before = _Tracer(1 << 60), sys.gettrace()
    prepare()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
    places = (1 << 60) - tracer.left
    for at in range(0, places, -(-places // most)):
        prepare()
        errors = [interrupted(call, at)]
        if errors[0] is not None:
            yield errors.pop()
