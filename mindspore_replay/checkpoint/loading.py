"""Reads files into parts."""

import contextlib
from collections.abc import Sequence
from typing import Any

from ..store.locks import hold_calls, hold_folders
from .nodes import descriptions, same_kind, summary
from .parts import Part
from .progress import progress_bar
from .restored import Restored
from .sources import Source
from .values import is_value


def load_parts(
    sources: Sequence[Source], parts: Sequence[Part], description: Any, *, new: bool = False, progress: bool = False
) -> None:
    """Read files into buffers, given as parts and their description.

    Raises:
        ValueError: If the files are of other buffers, or a state in them is invalid; then nothing is changed.
    """
    saved = sources[-1].header.description
    if not same_kind(description, saved):
        raise ValueError(
            f"For 'load', 'buffer' must be what was saved in {sources[-1].path}, {summary(saved)}, but got "
            f"{summary(description)}."
        )
    pairs = zip(parts, descriptions(saved))
    states = [Restored(sources, part, i, node.get("capacity", 0), new) for i, (part, node) in enumerate(pairs)]
    of_all = not any(map(is_value, sources[-1].header.entries))  # else the file also holds networks and other parts
    load_checked(sources, states, new, of_all, progress)


def load_checked(
    sources: Sequence[Source], states: Sequence[Any], new: bool, of_all: bool = True, progress: bool = False
) -> None:
    """Read files into the parts with these states. Everything is checked before any part changes.

    They are the first parts of the files, or, with `of_all`, all of them.
    """
    _check_arrays(sources, states, of_all)
    total = sum(source.header.nbytes for source in sources)
    if not new:
        total += sum(state.column_bytes() for state in states)
    with progress_bar("load", total, progress) as done, contextlib.ExitStack() as stack:
        for state in states:
            if state.part.is_buffer:
                stack.enter_context(state.part.owner.sole_use({}))
        for source in sources:
            source.progress = done
        for state in states:
            state.read_row_state()
        for state in states:
            if not new:
                state.check_columns()
        _overwrite(states, new)


def _check_arrays(sources: Sequence[Source], states: Sequence[Any], of_all: bool) -> None:
    """Raise a ValueError if a file lacks arrays of the parts, or, with `of_all`, has others."""
    names = {name for state in states for name in state.names()}
    for source in sources:
        wrong = [text for state in states for text in state.differences(source)]
        unknown = sorted(source.header.entries.keys() - names) if of_all else []
        if unknown:
            wrong.append(f"unknown arrays {unknown}")
        parts = len(source.header.since)
        if wrong or parts < len(states) or (of_all and parts != len(states)):
            raise ValueError(
                f"For 'load', {source.path} must hold the columns and all else of the buffer. {'; '.join(wrong)}."
            )


def _overwrite(states: Sequence[Any], new: bool) -> None:
    """Read the columns, then give the buffers their state."""
    of_buffers = [state for state in states if state.part.is_buffer]
    owners = [state.part.owner for state in of_buffers]
    with hold_calls(owners):
        for state in of_buffers:
            state.find_memory()
        try:
            with hold_folders(owners):
                _write(of_buffers)
            _write([state for state in states if not state.part.is_buffer])
        except BaseException:
            # The checks passed, so this is a read error of the disk: rows are now mixed.
            if not new:
                for owner in owners:
                    owner.reset()
            raise


def _write(states: Sequence[Any]) -> None:
    for state in states:
        state.begin()
        state.read_columns()
    for state in states:
        state.overwrite_marks()
