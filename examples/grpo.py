"""GRPO on sorting digits: a language model writes answers, a judge rewards them, and one compiled graph learns.

    python examples/grpo.py
    python examples/grpo.py --seed 1 --resume          # goes on after a kill
    python examples/plot_curves.py runs/grpo_sort_seed* --out grpo_sort.png

The model is a GRU that reads ``3 1 2 ASK`` and shall write ``1 2 3 END``. Two processes without MindSpore
(``grpo_workers.py``) write eight answers to each prompt with the newest weights that they have read, and insert them as
one group into a `ReplayQueue` in a folder. Answers differ in length. A third process judges them: the reward, 1 if all
is right and else 0, is a late column, and the queue delivers a group when its rewards are there. Groups whose policy is
more than eight updates old are not delivered.

The learner takes whole groups, the oldest first. One call of a compiled graph samples them, padded, and makes answers
more probable that are better than the mean of their group. Before, the model imitates right answers for 150 updates:
with one that never finds a right answer there would be no reward to learn from. The schedule of the processes is
random: two runs with one seed differ.

Reference:
    Shao et al. 2024, DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models,
    https://arxiv.org/abs/2402.03300. Omitted: the distance to a reference model. Means are over all tokens of a batch,
    as in Yu et al. 2025, DAPO, https://arxiv.org/abs/2503.14476.
"""

import argparse
import json
import shutil
from pathlib import Path

import mindspore as ms
import numpy as np
from actors import acting
from drawing import plot
from grpo_workers import ANSWERS, END, FEWEST, GROUP, JOBS, LONGEST, MOST, TOKENS, answer, is_right, prompts
from mindspore import Parameter, Tensor, nn, ops

from mindspore_replay import Column, ReplayQueue, SharedWeights, TrainingCheckpoint

#: Units of the GRU; imitations before GRPO; answers in a batch; updates after which an answer is too old.
HIDDEN, IMITATIONS, BATCH, STALE = 64, 150, 16 * GROUP, 8
#: Updates between two evaluations, and the share of right answers that counts as solved.
EVERY, SOLVED = 50, 0.95
#: How far the probability of a token may move before its gradient is cut, down and up.
CLIP = 0.2, 0.25
LABELS = {
    "x": "updates",
    "y": "right answers",
    "one": "batch",
    "mean": "mean of 20 batches",
    "test": "1000 prompts, greedy",
}


class Policy(nn.Cell):
    """A GRU. `answer` computes the same with NumPy.

    Args:
        rng (np.random.Generator): Draws the first weights.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        shapes = [(TOKENS, 3 * HIDDEN), (HIDDEN, 3 * HIDDEN), (3 * HIDDEN,), (HIDDEN, TOKENS)]
        arrays = [rng.uniform(-most, most, shape) for most, shape in zip((0.5, 0.125, 0.125, 0.125), shapes)]
        self.embedding, self.recurrent, self.bias, self.output = (Parameter(Tensor(x, ms.float32)) for x in arrays)

    def construct(self, tokens: Tensor) -> Tensor:
        """Return the logarithm of the probability of each token after the first, given those before. ``[B, L - 1]``."""
        inputs = ops.gather(self.embedding, tokens[:, :-1], 0)
        state = ops.zeros_like(inputs[:, 0, :HIDDEN])
        states = ()
        for t in range(inputs.shape[1]):
            x, h = inputs[:, t], ops.matmul(state, self.recurrent) + self.bias
            gates = ops.sigmoid(x[:, : 2 * HIDDEN] + h[:, : 2 * HIDDEN])
            reset, keep = gates[:, :HIDDEN], gates[:, HIDDEN:]
            state = keep * state + (1 - keep) * ops.tanh(x[:, 2 * HIDDEN :] + reset * h[:, 2 * HIDDEN :])
            states = (*states, state)
        logs = ops.log_softmax(ops.matmul(ops.stack(states, 1), self.output), -1)
        return ops.gather_elements(logs, 2, ops.expand_dims(tokens[:, 1:], 2))[:, :, 0]


class Imitation(nn.Cell):
    """One call makes right answers more probable."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy, weights = policy, policy.trainable_params()
        self.optimizer = nn.Adam(weights, 0.002)
        self.gradients = ms.value_and_grad(self.loss, None, weights)

    def construct(self, tokens: Tensor, is_answer: Tensor) -> Tensor:
        loss, gradients = self.gradients(tokens, is_answer)
        self.optimizer(ops.clip_by_global_norm(gradients, 1.0))
        return loss

    def loss(self, tokens: Tensor, is_answer: Tensor) -> Tensor:
        return -(self.policy(tokens) * is_answer).sum() / is_answer.sum()


class Learner(nn.Cell):
    """One call takes a batch of whole groups from the queue, and learns from it.

    Axes: ``B`` answers of a batch, ``L`` tokens of the longest prompt and answer.
    """

    def __init__(self, policy: Policy, answers: ReplayQueue) -> None:
        super().__init__()
        self.policy, weights = policy, policy.trainable_params()
        self.answers = answers
        self.optimizer = nn.Adam(weights, 0.002)
        self.gradients = ms.value_and_grad(self.loss, None, weights)
        self.place = Tensor(np.arange(1, LONGEST), ms.int32)

    def construct(self) -> tuple[Tensor, Tensor]:
        """Return the mean reward ``[]``, and the lag of each answer ``[B]``: updates since its policy."""
        batch = self.answers.sample(as_dict=True, with_indices=True)
        reward = ops.reshape(batch["reward"], (-1, GROUP))
        mean = reward.mean(1, True)
        advantage = (reward - mean) / (ops.sqrt(ops.square(reward - mean).mean(1, True)) + 0.01)
        begins = self.place >= ops.expand_dims(batch["begin"], 1)
        ends = self.place < ops.expand_dims(batch["lengths"], 1)
        is_answer = ops.cast(ops.logical_and(begins, ends), ms.float32)
        _, gradients = self.gradients(batch["tokens"], batch["log_probs"], ops.reshape(advantage, (-1, 1)), is_answer)
        self.optimizer(ops.clip_by_global_norm(gradients, 1.0))
        lag = self.answers.info(batch["indices"])[2]
        _ = self.answers.advance()
        return mean.mean(), lag

    def loss(self, tokens: Tensor, log_probs: Tensor, advantage: Tensor, is_answer: Tensor) -> Tensor:
        ratio = ops.exp(self.policy(tokens) - log_probs[:, 1:])
        gain = ops.minimum(ratio * advantage, ops.clamp(ratio, 1 - CLIP[0], 1 + CLIP[1]) * advantage)
        return -(gain * is_answer).sum() / is_answer.sum()


def imitate(policy: Policy, rng: np.random.Generator) -> None:
    """Learn from some right answers."""
    imitation = Imitation(policy)
    for _ in range(IMITATIONS):
        tokens, is_answer = np.full((BATCH, LONGEST), END, np.int32), np.zeros((BATCH, LONGEST - 1), np.float32)
        for row, is_one in zip(tokens, is_answer):
            prompt = prompts(1, rng.integers(FEWEST, MOST + 1), rng)[0]
            row[: 2 * len(prompt) - 1] = [*prompt, *np.sort(prompt[:-1])]
            is_one[len(prompt) - 1 : 2 * len(prompt) - 1] = 1
        imitation(Tensor(tokens), Tensor(is_answer))


def right_answers(policy: Policy, count: int, rng: np.random.Generator) -> float:
    """Return the share of `count` prompts whose most probable tokens are right."""
    weights = [weight.asnumpy() for weight in policy.trainable_params()]
    digits = rng.integers(FEWEST, MOST + 1, count)
    asked = [prompts((digits == n).sum(), n, rng) for n in range(FEWEST, MOST + 1)]
    return float(np.mean([is_right(tokens) for prompt in asked for tokens in answer(weights, prompt)[0]]))


def queues(folder: Path, is_new: bool) -> tuple[ReplayQueue, ReplayQueue]:
    """Make or open the queue of answers and that of the judge, which gets the answers of a group together."""
    if not is_new:
        return ReplayQueue.open(folder / ANSWERS), ReplayQueue.open(folder / JOBS)
    for name in (ANSWERS, JOBS):
        shutil.rmtree(folder / name, ignore_errors=True)
    answers = ReplayQueue(
        BATCH,
        capacity=4 * BATCH,
        columns={
            "tokens": Column((None,), "int32", longest=LONGEST, items=4 * BATCH * LONGEST),
            "log_probs": Column((None,), "float32", lengths_of="tokens"),
            "begin": Column((), "int32"),
            "reward": Column((), "float32", late=True),
        },
        max_staleness=STALE,
        timeout=20,
        storage=folder / ANSWERS,
    )
    jobs = ReplayQueue(
        GROUP,
        capacity=4 * BATCH,
        columns={
            "handle": Column((), "int64"),
            "tokens": Column((None,), "int32", longest=LONGEST, items=4 * BATCH * LONGEST),
        },
        storage=folder / JOBS,
    )
    return answers, jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000, help="updates")
    parser.add_argument("--out", type=Path, help="folder of the run; default: runs/grpo_sort_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    options = parser.parse_args()
    folder = options.out or Path("runs") / f"grpo_sort_seed{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    rng = np.random.default_rng(options.seed)
    policy = Policy(rng)
    answers, jobs = queues(folder, not options.resume)
    learner, weights = Learner(policy, answers), SharedWeights(answers)
    checkpoint = TrainingCheckpoint(folder / "training.safetensors", learner=learner, jobs=jobs, rng=rng)
    if options.resume:
        state = checkpoint.load()
        if state is None:
            raise SystemExit(f"{folder} has no checkpoint to go on from")
        step, history = state["step"], state["history"]
    else:
        imitate(policy, rng)
        step, history = 0, {"episodes": [], "evaluations": [(0, right_answers(policy, 1000, rng))], "lags": []}
        checkpoint.save(step=step, history=history)
    weights.publish(policy)
    lags: list[int] = []
    with acting("grpo_workers.py", 3, folder, answers, jobs) as ended:
        while step < options.steps:
            try:
                with answers.limiter.sampling(BATCH):  # waits for whole groups with their rewards
                    reward, lag = learner()
            except TimeoutError:
                ended()
                answers.reset()  # full of groups whose reward was lost with a process that judged them
                continue
            lags += [one for one in lag.asnumpy().tolist() if one >= 0]  # -1: its place is taken
            weights.publish(policy)
            step += 1
            history["episodes"].append((step, float(reward)))
            if step % EVERY == 0:
                ended()
                history["evaluations"].append((step, right_answers(policy, 1000, rng)))
                history["lags"] += [(step, float(np.mean(lags)))] if lags else []
                lag_of_these = f"{np.mean(lags):.1f}" if lags else "unknown"
                lags.clear()
                print(f"{step} updates: {history['evaluations'][-1][1]:.3f} right, lag {lag_of_these}", flush=True)
                checkpoint.save(step=step, history=history)
    final = right_answers(policy, 5000, rng)
    config = {"title": "GRPO", "environment": "sorting digits", "return_range": (0, 1.02), "labels": LABELS}
    config["evaluation"] = {"solved_at": SOLVED}
    (folder / "history.json").write_text(json.dumps({**history, "final": final, "config": config}))
    plot({folder.name: history}, folder / "learning_curve.png", config)
    print(f"{final:.3f} of 5000 prompts are answered right")
    if final < SOLVED:
        raise SystemExit(f"not solved: below {SOLVED}")


if __name__ == "__main__":
    main()
