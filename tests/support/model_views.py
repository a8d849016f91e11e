"""What samples of views hold, step by step, of the slow twin."""

from typing import Any

import numpy as np
from model import Model
from model_rows import Record, Views


def chain_of(twin: Model, start: Record, views: Views) -> list[Record]:
    """Return the steps of an n-step return: transitions of one episode with a next observation."""
    chain = [start]
    while len(chain) < views.n and not chain[-1].end:
        following = twin.at(chain[-1], 1)
        if following is None or following.final:
            break
        if not views.own_next and not following.end and twin.at(following, 1) is None:
            break
        chain.append(following)
    return chain


def sample_of(twin: Model, start: Record, views: Views) -> dict[str, Any]:
    """Return the fields of the sample that starts at a row, by name."""
    chain = chain_of(twin, start, views)
    rows = [record.row for record in chain]
    fields = dict(rows[0])
    zeros = np.zeros_like(rows[0]["observation"])

    def frames(last: int) -> np.ndarray:
        window = twin.window_of(start.serial, range(last - max(views.frames, 1) + 1, last + 1))
        stack = np.stack([zeros if row is None else row["observation"] for row in window])
        return stack if views.frames else stack[0]

    fields["observation"] = frames(0)
    fields["next_observation"] = rows[-1]["next_observation"] if views.own_next else frames(len(chain))
    if views.n:
        terms = [row["reward"].astype(np.float64) * views.gamma**i for i, row in enumerate(rows)]
        fields["reward"] = np.sum(terms, 0).astype(rows[0]["reward"].dtype)
        fields["terminated"], fields["truncated"] = rows[-1]["terminated"], rows[-1]["truncated"]
        fields["discount"] = np.float32(0 if rows[-1]["terminated"] else views.gamma ** len(chain))
    return fields


def window_of(twin: Model, handle: int, views: Views) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the mask and the fields of a sequence with n-step returns: each step is a sample of its own, or zeros."""
    steps = twin.steps_of(handle)
    given = [step is not None and is_transition(twin, step, views) for step in steps]
    samples = [sample_of(twin, step, views) if step and there else None for step, there in zip(steps, given)]
    first = twin.record_of(handle)
    assert first is not None
    blank = {name: np.zeros_like(value) for name, value in sample_of(twin, first, views).items()}
    return np.array(given), {name: np.stack([(sample or blank)[name] for sample in samples]) for name in blank}


def is_transition(twin: Model, record: Record, views: Views) -> bool:
    """Return True if a row holds a step of its environment whose next observation is known."""
    return not record.final and (views.own_next or record.end or twin.at(record, 1) is not None)
