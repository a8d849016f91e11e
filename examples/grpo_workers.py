"""The processes beside the learner of ``grpo.py``: two that write answers, and one that judges them, without MindSpore.

    python examples/grpo_workers.py FOLDER NUMBER          # started by grpo.py; number 0 judges

A prompt is some digits and ASK, its right answer the digits in order and END.
"""

import sys
from pathlib import Path

import numpy as np

from mindspore_replay import SharedWeights, attach

#: Folders of the queues: answers for the learner, and the same answers for the judge.
ANSWERS, JOBS = "answers", "jobs"
#: Tokens after the digits 0 to 9, and the number of tokens.
ASK, END, TOKENS = 10, 11, 12
#: Digits of a prompt; tokens of the longest prompt and answer together; answers to a prompt; prompts at a time.
FEWEST, MOST, LONGEST, GROUP, PROMPTS = 2, 5, 12, 8, 4


def prompts(count: int, digits: int, rng: np.random.Generator) -> np.ndarray:
    """Return prompts. Shape ``[count, digits + 1]``."""
    return np.pad(rng.integers(10, size=(count, digits)), ((0, 0), (0, 1)), constant_values=ASK).astype(np.int32)


def answer(
    weights: list[np.ndarray], prompt: np.ndarray, rng: np.random.Generator | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Continue each prompt up to END, by the policy's probabilities, or with its best tokens if there is no `rng`.

    Returns:
        tuple: Of each prompt, all tokens ``[length]``, int32, and the logarithms of their probabilities ``[length]``,
        float32, which are 0 for those of the prompt.
    """
    embedding, recurrent, bias, output = weights
    rows, begin, size = np.arange(len(prompt)), prompt.shape[1], len(recurrent)
    tokens = np.full((len(prompt), LONGEST), END, np.int32)
    tokens[:, :begin] = prompt
    log_probs = np.zeros((len(prompt), LONGEST), np.float32)
    state = np.zeros((len(prompt), size), np.float32)
    for t in range(LONGEST - 1):
        x, h = embedding[tokens[:, t]], state @ recurrent + bias
        gates = 1 / (1 + np.exp(-x[:, : 2 * size] - h[:, : 2 * size]))
        reset, keep = gates[:, :size], gates[:, size:]
        state = keep * state + (1 - keep) * np.tanh(x[:, 2 * size :] + reset * h[:, 2 * size :])
        if t + 1 >= begin:
            logits = state @ output
            logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            tokens[:, t + 1] = (logs if rng is None else logs + rng.gumbel(size=logs.shape)).argmax(1)
            log_probs[:, t + 1] = logs[rows, tokens[:, t + 1]]
    ends = tokens[:, begin:-1] == END
    lengths = begin + 1 + np.where(ends.any(1), ends.argmax(1), ends.shape[1])
    return [row[:n] for row, n in zip(tokens, lengths)], [row[:n] for row, n in zip(log_probs, lengths)]


def is_right(tokens: np.ndarray) -> bool:
    """Return whether a prompt is followed by its digits in order and END."""
    begin = int((tokens == ASK).argmax())
    return np.array_equal(tokens[begin + 1 :], [*np.sort(tokens[:begin]), END])


def generate(folder: Path) -> None:
    """Answer prompts with the newest weights. One insertion has whole groups, of the same version."""
    answers, jobs, rng = attach(folder / ANSWERS), attach(folder / JOBS), np.random.default_rng()
    shared = SharedWeights(answers)
    newest = shared.read(timeout=60)
    while True:
        if newest is not None:
            weights = list(newest.values())
        prompt = prompts(PROMPTS, rng.integers(FEWEST, MOST + 1), rng).repeat(GROUP, 0)
        tokens, log_probs = answer(weights, prompt, rng)
        rows = {"tokens": tokens, "log_probs": log_probs, "begin": np.full(len(tokens), prompt.shape[1], np.int32)}
        handles = answers.insert(rows, version=shared.version, with_indices=True)  # waits while the queue is full
        jobs.insert({"handle": handles, "tokens": tokens})
        newest = shared.read()


def judge(folder: Path) -> None:
    """Write the rewards of whole groups, which the learner then gets."""
    answers, jobs = attach(folder / ANSWERS), attach(folder / JOBS)
    while True:
        length, handle, tokens = jobs.sample()  # waits for a group
        answers.update(handle, {"reward": [is_right(row[:n]) for row, n in zip(tokens, length)]})


if __name__ == "__main__":
    assert "mindspore" not in sys.modules
    place, number = Path(sys.argv[1]), int(sys.argv[2])
    try:
        generate(place) if number else judge(place)
    except RuntimeError as error:
        if not attach(place / ANSWERS).closed:  # the learner died
            sys.exit(str(error))
