"""The arrays of a buffer's state: their layout, initial values and invariants."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.late import pending
from ..base.length_groups import LengthGroup, least_items
from ..base.random import initial_state
from ..base.ring import stored_slots, stored_spans
from ..base.schema import Schema
from ..base.structs import CLOCK, COUNTS, EPOCH
from ..base.types import Arrays
from ..spec.episodes import check_timeline, legal_starts
from ..spec.epochs import FIRST, check_epoch
from ..spec.options import Options
from .memory import zeros
from .tree import build_weights, first_positive, initial_weights, tree_size

#: Shape and dtype of arrays, by name.
Layout = Mapping[str, tuple[tuple[int, ...], str]]

#: Slots of a block, of which one number tells when a row in it was last updated; as in csrc/core/updates.h.
UPDATE_BLOCK = 16


def layout(schema: Schema, options: Options) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each array, by name."""
    capacity, stored = options.capacity, schema.references
    columns = zip(stored.names, stored.shapes, stored.stored_dtypes)
    arrays = {f"column.{name}": ((capacity, *shape), dtype) for name, shape, dtype in columns}
    arrays |= schema.arenas | {
        "head": ((), "int32"),
        "count": ((), "int32"),
        "serials": ((2,), "int64"),
        "random_state": ((2,), "int64"),
    }
    if "row_state" in options.groups:
        arrays |= {
            "weights": ((tree_size(capacity),), "float64"),
            "priorities": ((capacity,), "float32"),
            "max_priority": ((), "float32"),
            "use_counts": ((capacity,), "int32"),
            "insertion_clocks": ((capacity,), "int64"),
            "clock": ((len(CLOCK),), "int64"),
            "counts": ((len(COUNTS),), "int64"),
        }
    if "episodes" in options.groups:
        arrays |= {"steps": ((capacity,), "int64"), "flags": ((capacity,), "uint8")}
    if options.reservoir:
        arrays["row_serials"] = ((capacity,), "int64")
    if options.beta is not None:
        arrays["beta"] = ((1,), "float64")
    if options.epochs is not None:
        arrays["epoch"] = ((len(EPOCH),), "int64")
    if options.window is not None:
        arrays["window"] = ((1,), "int64")
    return arrays


def whole_layout(schema: Schema, options: Options) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each array of `layout`, and of ``updates``, by name.

    ``updates`` counts the calls of `update`, and tells for each block of slots which was the last that wrote a row
    there. It is no part of the state: a buffer in a folder and a checkpoint find out by it what changed.
    """
    blocks = -(-options.capacity // UPDATE_BLOCK)
    return {**layout(schema, options), "updates": ((1 + blocks,), "int64")}


def updated_slots(updates: np.ndarray, since: int, capacity: int) -> np.ndarray:
    """Return the slots of blocks that were updated after the first `since` updates, in order. Shape ``[n]``, int64."""
    blocks = np.flatnonzero(updates[1:] > since)
    if not blocks.size:
        return blocks
    slots = (blocks[:, None] * UPDATE_BLOCK + np.arange(UPDATE_BLOCK)).reshape(-1)
    return slots[slots < capacity]


def note_update(updates: np.ndarray, slots: np.ndarray) -> None:
    """Count an update of the rows in some slots."""
    updates[0] += 1
    updates[1:][slots // UPDATE_BLOCK] = updates[0]


#: Begins of the names of arrays of rows.
OF_ROWS = ("column.", "items.")
#: Of the names of arrays, those of columns.
names_of_columns = functools.partial(filter, re.compile(r"column\.").match)

#: The arrays, besides columns, with a number for each slot; the tree of ``weights`` begins with them.
BY_SLOT = ("weights", "priorities", "use_counts", "insertion_clocks", "steps", "flags", "row_serials")


def make(schema: Schema, options: Options) -> dict[str, np.ndarray]:
    """Return the arrays of an empty buffer, with ``updates``."""
    expected = whole_layout(schema, options).items()
    arrays = zeros({name: (shape, schema.numpy_type(dtype)) for name, (shape, dtype) in expected})
    initialize(options, arrays)
    return arrays


def initialize(options: Options, arrays: Arrays) -> None:
    """Set the initial values of arrays of zeros."""
    begin = {"random_state": initial_state(options.seed), "max_priority": options.initial_priority}
    begin |= {"beta": options.beta, "window": options.window}
    if "weights" in arrays:
        begin["weights"] = initial_weights(options.capacity)
    for name, value in begin.items():
        if name in arrays:
            arrays[name][...] = value


def eligible(options: Options, state: Arrays) -> np.ndarray:
    """Find the slots of rows at which a sample may start, from scratch. Shape ``[C]``, bool. Cost O(C)."""
    if options.rule is not None:
        return legal_starts(state, options.rule)
    stored = np.zeros(options.capacity, bool)
    stored[stored_slots(state, options.capacity)] = True
    return stored & (state["use_counts"] >= 0)


#: The arrays that `room` and `pending_note` read.
ROOM = ("head", "count", "serials", "weights", "use_counts")


def room(options: Options, state: Arrays) -> int:
    """Return the number of rows that can be inserted without evicting one that can still be drawn. Cost O(log C)."""
    capacity, head, count, rule = options.capacity, int(state["head"]), int(state["count"]), options.rule
    slot = first_positive(state["weights"], capacity, head)
    if slot < 0:
        slot = first_positive(state["weights"], capacity, 0)
    unneeded = count if slot < 0 else (slot - head) % capacity
    reach = 0 if rule is None else (rule.future - 1) * rule.streams
    if options.late:
        waiting = _waiting(options, state)
        unneeded = min(unneeded, int(np.argmax(waiting)) - reach) if waiting.any() else unneeded
    if rule is not None:  # the newest rows may become starts, and a start needs its past
        unneeded = min(unneeded, count - reach) - rule.past * rule.streams
    return capacity - count + max(unneeded, 0)


def room_in_items(options: Options, state: Arrays) -> str:
    """Return how many items the next row may have, for a message."""
    free = [min(max(free), group.longest) for group, free in zip(options.length_groups, _free_items(options, state))]
    each = zip(free, options.length_groups)
    return f"at most {' and '.join(f'{most} items in column {group.name!r}' for most, group in each)}"


def room_for_longest(options: Options, state: Arrays) -> int:
    """Return the number of the longest rows whose items fit beside those of rows that are kept."""
    each = zip(options.length_groups, _free_items(options, state))
    return min(sum(size // group.longest for size in free) for group, free in each)


def _free_items(options: Options, state: Arrays) -> list[tuple[int, int]]:
    """Return for each kind of lengths the free items behind the newest row, and, where these end, from the first on."""
    head, count, capacity = int(state["head"]), int(state["count"]), options.capacity
    needed = capacity - room(options, state) if options.never_evicts_valid else count  # rows
    found = []
    for group in options.length_groups:
        free = behind = group.items
        if needed > 0:
            references = state[f"column.{group.name}"]
            tail = int(references[(head + count - 1) % capacity].sum())
            free -= tail - int(references[(head + count - needed) % capacity, 0])
            behind -= tail % group.items
        found.append((min(free, behind), max(free - behind, 0)))
    return found


#: The arrays that `deliverable` reads.
OF_DELIVERIES = (*ROOM, "steps", "flags")


def deliverable(options: Options, state: Arrays) -> int:
    """Return the number of samples that a full queue can deliver now, the oldest first. Cost O(C).

    Rows delivered behind one that waits for late columns keep their places, and their items, until it is complete. So
    many leave room for two samples beside them, since else rows that are complete could be too few for a sample when
    there is no room. No sequence is delivered behind a row that waits.
    """
    slots = stored_slots(state, options.capacity)
    waiting, valid = _waiting(options, state), eligible(options, state)[slots]
    if not waiting.any():
        return int(valid.sum())
    first = int(np.argmax(waiting))
    before, behind = int(valid[:first].sum()), int(valid[first:].sum())
    delivered = slots[first:][~(valid | waiting)[first:]]  # behind the one that waits
    places = 0 if options.rule is not None else options.capacity - len(delivered) - 2 * options.plan.n
    for group in options.length_groups:
        items = group.items - int(state[f"column.{group.name}"][delivered, 1].sum())
        places = min(places, (items - least_items(2 * options.plan.n, group.longest)) // group.longest)
    return before + max(min(behind, places), 0)


def _waiting(options: Options, state: Arrays) -> np.ndarray:
    """Return which of the stored rows wait for late columns, the oldest first. Shape ``[n]``, bool."""
    return pending(state["use_counts"][stored_slots(state, options.capacity)])


#: The arrays that `largest_held` reads.
OF_LARGEST = ("head", "count", "priorities", "use_counts", "max_priority")


def largest_held(options: Options, state: Arrays) -> float:
    """Return the largest priority of the rows stored, or `initial_priority` if there are none.

    `max_priority` must not be less than that. Costs O(C), or O(1) if the newest row has it.
    """
    newest = (int(state["head"]) + int(state["count"]) - 1) % options.capacity
    if state["count"] and state["use_counts"][newest] >= 0 and state["priorities"][newest] >= state["max_priority"]:
        return float(state["max_priority"])
    largest = _largest_held(options, state)
    return options.initial_priority if largest < 0 else largest


def _largest_held(options: Options, state: Arrays) -> float:
    """Return the largest priority of the rows stored, or -1 if there are none. Costs O(C)."""
    largest = -1.0
    for span in stored_spans(state, options.capacity):
        uses = state["use_counts"][span]
        valid = (uses >= 0) | pending(uses)
        largest = max(largest, float(state["priorities"][span].max(where=valid, initial=-1)))
    return largest


def pending_note(options: Options, state: Arrays) -> str:
    """Return a sentence on the rows that wait for late columns, to end a message with, empty if there are none."""
    if not options.late:
        return ""
    waiting = _waiting(options, state)
    if not waiting.any():
        return ""
    rows, oldest = int(waiting.sum()), int(state["serials"][0]) - len(waiting) + int(np.argmax(waiting))
    which = "1 row is" if rows == 1 else f"{rows} rows are"
    cannot = "neither be sampled nor evicted" if options.never_evicts_valid else "not be sampled"
    return (
        f" {which} pending, without late columns, and can {cannot}; the "
        f"oldest has the handle {oldest}. Write its columns with update({oldest}, ...), or remove it with "
        f"delete({oldest})."
    )


def renumbered(arrays: Arrays, inserted: int) -> dict[str, np.ndarray]:
    """Return a state with its serial numbers raised, if need be, so that the oldest row's is at least `inserted`."""
    rows, numbers = int(arrays["count"]), arrays["serials"]
    serials = arrays["row_serials"][:rows] if "row_serials" in arrays else np.arange(numbers[0] - rows, numbers[0])
    more = max(inserted - int(serials.min(initial=numbers[0])), 0)
    # The serial numbers in each array, by the index of the first.
    first = {"serials": 0, "row_serials": 0, "clock": 1}
    raised = {key: np.append(arrays[key][:i], arrays[key][i:] + more) for key, i in first.items() if key in arrays}
    if "epoch" in arrays:
        raised["epoch"] = arrays["epoch"] + more * (np.arange(len(arrays["epoch"])) == FIRST)
    return {**arrays, **raised}


def check(options: Options, state: Arrays) -> None:
    """Raise a ValueError if the arrays, apart from columns, are inconsistent."""
    name, capacity = options.cls_name, options.capacity
    check_places(options, state)
    if options.weighting is not None:
        (check_clocks if options.reservoir else check_times)(name, capacity, state)
        check_weights(name, capacity, state, eligible(options, state), options)
    if options.rule is not None:
        check_timeline(name, state, options.rule)
    if options.epochs is not None:
        check_epoch(name, capacity, state["epoch"])
    if options.beta is not None and not 0 <= state["beta"][0] <= 1:
        raise ValueError(f"For '{name}', 'beta' must be in [0, 1], but got {state['beta'][0]}.")
    if options.window is not None and not 1 <= state["window"][0] <= capacity:
        raise ValueError(f"For '{name}', 'window' must be in [1, {capacity}], but got {state['window'][0]}.")
    for group in options.length_groups:
        if f"column.{group.name}" in state:
            check_references(name, group, state[f"column.{group.name}"][stored_slots(state, capacity)])


def check_references(cls_name: str, group: LengthGroup, references: np.ndarray) -> None:
    """Raise a ValueError unless the items of rows ``[n, 2]`` are in the arena, in order, and none are of two rows."""
    offsets, lengths = references.T
    ends = offsets + lengths
    wrong = (offsets < 0) | (lengths < 0) | (lengths > group.longest) | (offsets % group.items + lengths > group.items)
    if wrong.any() or (offsets[1:] < ends[:-1]).any() or (ends.size and ends[-1] - offsets[0] > group.items):
        raise ValueError(
            f"For '{cls_name}', the offsets and lengths of column {group.name!r} must be those of rows one behind the "
            f"other, of at most {group.longest} items each and {group.items} in all, but got {references.tolist()}."
        )


def check_places(options: Options, state: Arrays) -> None:
    """Raise a ValueError if the cursors, or the serial numbers of a reservoir, are inconsistent."""
    (check_reservoir if options.reservoir else check_cursors)(options.cls_name, options.capacity, state)


def checked(
    schema: Schema, options: Options, saved: Arrays, version: int, others: Layout | None = None
) -> dict[str, np.ndarray]:
    """Check a saved state, and return its arrays, `others` among them. Raise a ValueError if it is invalid."""
    expected = {**layout(schema, options), **(others or {})}
    arrays = fitting(options.cls_name, saved, expected, schema.numpy_type("bfloat16"))
    for key, value in (("version", version), ("capacity", options.capacity)):
        if int(saved.get(key, 0)) != value:
            got = saved.get(key, "nothing")
            raise ValueError(f"For '{options.cls_name}', '{key}' of 'state_dict' must be {value}, but got {got}.")
    check(options, arrays)
    return arrays


def fitting(
    cls_name: str,
    saved: Arrays,
    expected: Layout,
    bfloat16: np.dtype[Any] = np.dtype(np.uint16),  # noqa: B008
) -> dict[str, np.ndarray]:
    """Return arrays of these shapes and dtypes from a saved state. Raise a ValueError that lists all wrong ones."""
    arrays = {key: np.asarray(saved[key]) for key in expected if key in saved}
    wrong = []
    for key, (shape, dtype) in expected.items():
        if key not in arrays:
            wrong.append(f"{key!r}: expected {dtype} {shape}, but got nothing")
            continue
        array = arrays[key]
        name = array.dtype.name
        if dtype == "bfloat16" and (name == dtype or array.dtype in ("V2", "uint16")):  # its bits, as in files
            arrays[key], name = array.view(bfloat16), dtype
        if (name, array.shape) != (dtype, shape):
            wrong.append(f"{key!r}: expected {dtype} {shape}, but got {name} {array.shape}")
    unknown = sorted(set(saved) - set(expected) - {"version", "capacity"})
    if unknown:
        wrong.append(f"unknown keys {unknown}")
    if wrong:
        raise ValueError(
            f"For '{cls_name}', 'state_dict' must be that of a buffer with the same columns. {'; '.join(wrong)}."
        )
    return arrays


def check_cursors(cls_name: str, capacity: int, cursors: Arrays) -> None:
    """Raise a ValueError if ``head``, ``count`` and ``serials`` are inconsistent."""
    head, count = int(cursors["head"]), int(cursors["count"])
    inserted, base = (int(serial) for serial in cursors["serials"])
    since_reset = inserted - base
    # Fewer rows are stored if a process died within an insertion, which had evicted the oldest ones.
    if base < 0 or not 0 <= count <= min(since_reset, capacity) or head != (since_reset - count) % capacity:
        raise ValueError(
            f"For '{cls_name}', the cursors must describe a ring of capacity {capacity}: count <= min(inserted - base, "
            f"capacity) and head = (inserted - base - count) % capacity, but got head={head}, count={count}, "
            f"inserted={inserted}, base={base}."
        )


def check_reservoir(cls_name: str, capacity: int, state: Arrays) -> None:
    """Raise a ValueError if cursors and ``row_serials`` are inconsistent."""
    head, count = int(state["head"]), int(state["count"])
    inserted, base = (int(serial) for serial in state["serials"])
    if head != 0 or base < 0 or count != min(inserted - base, capacity):
        raise ValueError(
            f"For '{cls_name}', the cursors must describe a reservoir of capacity {capacity}: head = 0 and count = "
            f"min(inserted - base, capacity), but got head={head}, count={count}, inserted={inserted}, base={base}."
        )
    stored = state["row_serials"][:count]
    first = (stored - base < capacity) & (stored - base != np.arange(count))
    if count and (stored.min() < base or stored.max() >= inserted or first.any() or np.unique(stored).size < count):
        raise ValueError(
            f"For '{cls_name}', 'row_serials' must be different numbers from {base} to {inserted - 1}, and each of the "
            f"first {capacity} of them in its own slot, but got {stored}."
        )


def check_clocks(cls_name: str, capacity: int, state: Arrays) -> None:
    """Raise a ValueError if the clocks of the rows in a reservoir are impossible."""
    count, base, (now, fresh, _) = int(state["count"]), int(state["serials"][1]), state["clock"].tolist()
    clocks = state["insertion_clocks"][:count]
    if fresh != base or now < 0 or ((clocks < 0) | (clocks > now)).any():
        raise ValueError(
            f"For '{cls_name}', 'clock' must begin with [now, {base}], and 'insertion_clocks' from 0 to now, but got "
            f"{[now, fresh]} and {clocks.tolist()}."
        )


def check_times(cls_name: str, capacity: int, state: Arrays) -> None:
    """Raise a ValueError if the rows' clocks are impossible, or are not in the order of the rows where they must be."""
    wrong = []
    inserted, count, (now, fresh, unordered) = int(state["serials"][0]), int(state["count"]), state["clock"].tolist()
    if not (now >= 0 and inserted - count <= fresh <= inserted and 0 <= unordered <= inserted):
        wrong.append(f"'clock' is {state['clock'].tolist()}, with {count} rows stored of {inserted} inserted")
    times = state["insertion_clocks"][stored_slots(state, capacity)]
    if ((times < 0) | (times > now)).any():
        wrong.append("'insertion_clocks' are not from 0 to the clock")
    before, behind = np.split(times, [max(unordered - (inserted - count), 0)])
    if (np.diff(np.append(before.max(initial=0), behind)) < 0).any():
        wrong.append(f"'insertion_clocks' fall from an older row to a newer one behind row {unordered}")
    if wrong:
        raise ValueError(f"For '{cls_name}', the clocks must be those of its rows: {'; '.join(wrong)}.")


def check_weights(cls_name: str, capacity: int, state: Arrays, eligible: np.ndarray, options: Options) -> None:
    """Raise a ValueError if the tree does not follow from its leaves, or a leaf from the priority of its row."""
    leaves = state["weights"][:capacity]
    wrong = []
    if not np.array_equal(state["weights"], build_weights(leaves)):
        wrong.append("the tree of 'weights' is not that of its leaves")
    priorities = state["priorities"]
    normal = np.where(priorities < np.finfo(np.float32).tiny, 0.0, priorities.astype(np.float64))
    alpha, epsilon = options.weighting or (0.0, 0.0)
    expected = (normal + epsilon) ** alpha * eligible
    different = np.flatnonzero(~np.isclose(leaves, expected, rtol=1e-6, atol=0))
    if different.size:
        slot = different[0]
        wrong.append(f"the weight in slot {slot} must be {expected[slot]}, but got {leaves[slot]}")
    least = (
        max(_largest_held(options, state), 0.0)
        if options.largest_held
        else priorities[stored_slots(state, capacity)].max(initial=options.initial_priority)
    )
    if not least <= state["max_priority"] < np.inf:
        wrong.append(f"'max_priority' is {state['max_priority']}, and must be finite and at least {least}")
    if (state["counts"] < 0).any():
        wrong.append(f"'counts' is {state['counts'].tolist()}, with a number below zero")
    if wrong:
        raise ValueError(f"For '{cls_name}', the weights must be those of its rows: {'; '.join(wrong)}.")
