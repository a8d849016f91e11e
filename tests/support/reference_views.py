"""Slow twins of views, from the docs alone: what a sample holds, step by step."""

from typing import Any, NamedTuple

import numpy as np
from reference import Record, ReferenceBuffer, Rule


class Views(NamedTuple):
    """The views of a buffer that samples single rows, whose columns begin with an observation.

    Args:
        n (int): Steps of an n-step return; 0 for none.
        gamma (float): Its discount.
        frames (int): Frames of a stack; 0 for none.
        own_next (bool): True if a column holds the next observation.
    """

    n: int = 0
    gamma: float = 1.0
    frames: int = 0
    own_next: bool = False

    @property
    def needs_next(self) -> bool:
        """Return True if the next observation is that of the next row."""
        return not self.own_next and (self.n or self.frames) > 0

    def rule(self) -> Rule:
        """Return the rule: rows without an own next observation need the next row, unless they are the last."""
        return Rule(length=2 if self.needs_next else 1, before=max(self.frames - 1, 0), pad_end=True)


class Row(NamedTuple):
    """A row of the tests of views."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Any = None


def chain_of(twin: ReferenceBuffer, start: Record, views: Views) -> list[Record]:
    """Return the steps of an n-step return: transitions of one episode with a next observation."""
    chain = [start]
    while len(chain) < views.n and not chain[-1].end:
        following = twin.at(chain[-1].key, 1)
        if following is None or following.final:
            break
        if not views.own_next and not following.end and twin.at(following.key, 1) is None:
            break
        chain.append(following)
    return chain


def sample_of(twin: ReferenceBuffer, handle: int, views: Views) -> dict[str, Any]:
    """Return the fields of the sample that starts at a row, by name."""
    start = twin.record_of(handle)
    assert start is not None
    chain = chain_of(twin, start, views)
    rows = [twin.slots[(record.serial - twin.base) % twin.capacity] for record in chain]
    fields = rows[0]._asdict()
    if not views.own_next:
        del fields["next_observation"]
    zeros = np.zeros_like(rows[0].observation)

    def frames(last: int) -> np.ndarray:
        window = twin.window_of(handle, last - max(views.frames, 1) + 1, max(views.frames, 1))
        stack = np.stack([zeros if row is None else row.observation for row in window])
        return stack if views.frames else stack[0]

    fields["observation"] = frames(0)
    fields["next_observation"] = rows[-1].next_observation if views.own_next else frames(len(chain))
    if views.n:
        terms = [row.reward.astype(np.float64) * views.gamma**i for i, row in enumerate(rows)]
        fields["reward"] = np.sum(terms, 0).astype(rows[0].reward.dtype)
        fields["terminated"], fields["truncated"] = rows[-1].terminated, rows[-1].truncated
        fields["discount"] = np.float32(0 if rows[-1].terminated else views.gamma ** len(chain))
    return fields


def steps_of(
    twin: ReferenceBuffer, handle: int, views: Views, first: int, length: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the mask and the fields of a sequence with n-step returns: each step is a sample of its own, or zeros."""
    start = twin.record_of(handle)
    assert start is not None
    steps = [twin.at(start.key, offset) for offset in range(first, first + length)]
    given = [step is not None and is_transition(twin, step, views) for step in steps]
    samples = [sample_of(twin, step.serial, views) if step and there else None for step, there in zip(steps, given)]
    blank = {name: np.zeros_like(value) for name, value in sample_of(twin, handle, views).items()}
    return np.array(given), {name: np.stack([(sample or blank)[name] for sample in samples]) for name in blank}


def is_transition(twin: ReferenceBuffer, record: Record, views: Views) -> bool:
    """Return True if a row holds a step of its environment whose next observation is known."""
    return not record.final and (views.own_next or record.end or twin.at(record.key, 1) is not None)
