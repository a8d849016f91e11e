"""What samples of views hold, step by step, of the slow twin."""

import math
from typing import Any

import numpy as np
from model import Model
from model_rows import TOLERANCE, Record, Views


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


def sample_of(twin: Model, start: Record, views: Views, goal: Record | None = None) -> dict[str, Any]:
    """Return the fields of the sample that starts at a row, by name, with the goal of another row."""
    chain = chain_of(twin, start, views)
    rows = [record.row for record in chain]
    fields = dict(rows[0])
    zeros = np.zeros_like(rows[0]["observation"])

    def frames(last: int) -> np.ndarray:
        window = twin.window_of(start.serial, range(last - max(views.frames, 1) + 1, last + 1))
        stack = np.stack([zeros if row is None else row["observation"] for row in window])
        return stack if views.frames else stack[0]

    rewards = [row["reward"].astype(np.float64) for row in rows]
    if goal is not None:
        fields["desired_goal"] = goal.row["achieved_goal"]
        near = [math.dist(row["achieved_goal"], goal.row["achieved_goal"]) <= TOLERANCE for row in rows]
        rewards = [np.float64(0.0 if is_near else -1.0) for is_near in near]
        fields["reward"] = rewards[0].astype(rows[0]["reward"].dtype)
    fields["observation"] = frames(0)
    if views.own_next or views.needs_next:
        fields["next_observation"] = rows[-1]["next_observation"] if views.own_next else frames(len(chain))
    if views.n:
        terms = [reward * views.gamma**i for i, reward in enumerate(rewards)]
        fields["reward"] = np.sum(terms, 0).astype(rows[0]["reward"].dtype)
        fields["terminated"], fields["truncated"] = rows[-1]["terminated"], rows[-1]["truncated"]
        fields["discount"] = np.float32(0 if rows[-1]["terminated"] else views.gamma ** len(chain))
    return fields


def window_of(
    twin: Model, handle: int, views: Views, goal: Record | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the mask and the fields of a sequence with n-step returns: each step is a sample of its own, or zeros."""
    steps = twin.steps_of(handle)
    given = [step is not None and is_transition(twin, step, views) for step in steps]
    samples = [sample_of(twin, step, views, goal) if step and there else None for step, there in zip(steps, given)]
    first = twin.record_of(handle)
    assert first is not None
    blank = {name: np.zeros_like(value) for name, value in sample_of(twin, first, views).items()}
    return np.array(given), {name: np.stack([(sample or blank)[name] for sample in samples]) for name in blank}


def is_transition(twin: Model, record: Record, views: Views) -> bool:
    """Return True if a sequence shows a row: a step whose next observation is known, or any if it shows none."""
    if not (views.n or views.frames):
        return True
    return not record.final and (views.own_next or record.end or twin.at(record, 1) is not None)
