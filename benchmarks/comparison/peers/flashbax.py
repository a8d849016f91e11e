"""flashbax: buffers as pure functions of JAX; each operation is one jitted call with a donated state."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from flashbax.vault import Vault

from .. import cases
from ..answering import Peer, Work, answer
from ..cases import Case, batch_of, chunks_of, in_turn, priorities_of, single_rows

#: ``step(state, key, item)`` returns the new state, the new key and the output; unused arguments are None.
Step = Callable[[Any, Any, Any], tuple[Any, Any, Any]]

jax.config.update("jax_cpu_enable_async_dispatch", False)  # one more thread makes small operations much slower

EACH = 10_000  # operations of a compiled loop
UNCOMPRESSED = {"id": "blosc", "cname": "lz4", "clevel": 0}  # the default takes many times longer


def _first(rows: Any) -> Any:
    return jax.tree.map(lambda column: jnp.asarray(column[0]), rows)


def _filled(case: Case, init: Callable[[Any], Any], add: Callable[[Any, Any], Any]) -> Any:
    """Return a full state; `add` takes rows ``[n, *F]``."""
    state = init(_first(batch_of(case.schema, 1)))
    add = jax.jit(add, donate_argnums=0)
    for rows in chunks_of(case.schema, case.capacity):
        state = add(state, rows)
    return jax.block_until_ready(state)


def _work(
    case: Case, step: Step, state: Any, items: list[Any], *, key: bool = True, writes: bool = True, each: int = EACH
) -> Work:
    """Return one operation per call, or `each` of them in a compiled loop. An unmodified state is not donated."""
    random = jax.random.PRNGKey(0) if key else None
    if case.compiled:
        return _loop(step, state, random, items, each, writes)
    run = jax.jit(step, donate_argnums=(0, 1)) if writes else jax.jit(lambda *args: step(*args)[1:], donate_argnums=1)
    out = None

    def once(item: Any) -> None:
        nonlocal state, random, out
        if writes:
            state, random, out = run(state, random, item)
        else:
            random, out = run(state, random, item)

    work = Work(in_turn(once, items), lambda: jax.block_until_ready((state, random, out)))
    work.once()  # compiles
    work.wait()
    return work


def _loop(step: Step, state: Any, key: Any, items: list[Any], each: int, writes: bool) -> Work:
    """Run `each` operations in a scan over the items, which are arrays of JAX already."""
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *items) if items[0] is not None else None
    shape = jax.eval_shape(step, state, key, items[0])[2]
    out = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    turns = None if stacked is None else jnp.arange(each) % len(items)

    def loop(state: Any, key: Any, out: Any) -> Any:
        def body(carry: Any, turn: Any) -> Any:
            item = None if turn is None else jax.tree.map(lambda column: column[turn], stacked)
            # The output is carried, so that each of the operations has to produce it.
            new = step(carry[0] if writes else state, carry[1], item)
            return (new if writes else (None, *new[1:])), None

        return jax.lax.scan(body, (state if writes else None, key, out), turns, each)[0]

    run = jax.jit(loop, donate_argnums=(0, 1, 2) if writes else (1, 2))

    def once() -> None:
        nonlocal state, key, out
        written, key, out = run(state, key, out)
        state = written if writes else state

    empty = jax.jit(lambda x: jax.lax.fori_loop(0, each, lambda i, x: x ^ i, x))
    idle = jnp.int32(0)

    def minus() -> None:
        nonlocal idle
        idle = empty(idle)

    work = Work(once, lambda: jax.block_until_ready((state, key, out, idle)), each, minus)
    work.once()  # compiles
    minus()
    work.wait()
    return work


def _windows(case: Case, steps: int) -> tuple[Any, Any]:
    """Return a trajectory buffer for runs of consecutive steps, and its full state."""
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=1,
        sample_batch_size=case.batch,
        sample_sequence_length=steps,
        period=1,
        min_length_time_axis=steps,
        max_length_time_axis=case.capacity,
    )
    return buffer, _filled(case, buffer.init, lambda state, rows: buffer.add(state, _lead(rows)))


def _lead(rows: Any) -> Any:
    return jax.tree.map(lambda column: jnp.asarray(column)[None], rows)


def _stacks(window: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Return pairs of stacks from runs of ``STACK + 1`` single frames; the row is the last but one."""
    frames, ends = window["observation"], window["terminated"][:, : cases.STACK - 1]
    start = jnp.max(
        ends * jnp.arange(1, cases.STACK), 1, keepdims=True
    )  # its episode's first frame, where the stack is cut
    back = jnp.maximum(jnp.arange(cases.STACK), start)
    following = jnp.concatenate([back[:, 1:], jnp.full_like(start, cases.STACK)], 1)
    run = jnp.arange(len(frames))[:, None]
    rest = {name: column[:, cases.STACK - 1] for name, column in window.items() if name != "observation"}
    return {"observation": frames[run, back], "next_observation": frames[run, following], **rest}


def _returns(window: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Return rows with the discounted return of the run they begin and the observation after it."""
    ends = window["terminated"]
    alive = jnp.cumsum(ends, 1) - ends == 0
    reward = (window["reward"] * alive * cases.GAMMA ** np.arange(cases.N_STEP, dtype=np.float32)).sum(1)
    last = (jnp.arange(len(ends)), alive.sum(1) - 1)
    first = {name: window[name][:, 0] for name in ("observation", "action")}
    return {**first, "reward": reward, **{name: window[name][last] for name in ("next_observation", "terminated")}}


def _sampling(draw: Callable[[Any, Any], Any]) -> Step:
    """Return a step that samples by a function of the state and a new key."""

    def step(state: Any, key: Any, _: Any) -> Any:
        key, use = jax.random.split(key)
        return state, key, draw(state, use)

    return step


def _items(case: Case, add_batches: bool = True) -> tuple[Any, Any]:
    """Return an item buffer and its full state."""
    sizes = {"max_length": case.capacity, "min_length": 1, "sample_batch_size": case.batch}
    batches = flashbax.make_item_buffer(**sizes, add_batches=True)
    state = _filled(case, batches.init, batches.add)
    return batches if add_batches else flashbax.make_item_buffer(**sizes), state


def _prioritized(case: Case) -> tuple[Any, Any]:
    """Return a prioritised item buffer that takes single rows, and its full state."""
    sizes = {"max_length": case.capacity, "min_length": 1, "sample_batch_size": case.batch}
    make = flashbax.make_prioritised_item_buffer
    batches = make(**sizes, add_batches=True, priority_exponent=cases.ALPHA, device="cpu")
    state = _filled(case, batches.init, batches.add)
    update = jax.jit(batches.set_priorities, donate_argnums=0)
    state = update(state, jnp.arange(case.capacity), priorities_of(case.capacity))
    return make(**sizes, priority_exponent=cases.ALPHA, device="cpu"), state


def _weighted(buffer: Any) -> Callable[[Any, Any], Any]:
    def draw(state: Any, key: Any) -> Any:
        batch = buffer.sample(state, key)
        weights = batch.probabilities**-cases.BETA
        return batch, weights / weights.max()

    return draw


class Flashbax(Peer):
    """Measures flashbax."""

    packages = ("flashbax", "jax", "jaxlib")
    lacks: Mapping[str, str] = {"dqn": "it has buffers and no agents"}
    notes: Mapping[str, str] = {
        "sample": "the random key is split inside the call",
        "prioritized_insert": "add gives the largest priority, set_priorities its own",
        "prioritized_sample": "weights from its probabilities, by the caller",
        "frames_sample": "stacks of runs of 5 frames, by the caller's compiled code",
        "sequences": "with a mask by the caller's compiled code",
        "n_step": "one compiled call; returns of runs of 5 steps, by the caller's code",
        "save": "a Vault without compression; the one before is deleted first",
        "load": "a Vault without compression",
    }
    compiles = True

    def insert(self, case: Case) -> Work:
        buffer, state = _items(case, add_batches=case.batch > 1)
        many = range(10 if case.compiled else 1)
        rows = case.single_rows() if case.batch == 1 else [batch_of(case.schema, case.batch, seed) for seed in many]
        each = EACH if case.batch == 1 else EACH // 10
        step = lambda state, _, row: (buffer.add(state, row), None, None)  # noqa: E731
        return _work(case, step, state, rows, key=False, each=each)

    def sample(self, case: Case) -> Work:
        buffer, state = _items(case)
        step = _sampling(lambda state, key: buffer.sample(state, key).experience)
        return _work(case, step, state, [None], writes=False, each=EACH // 10)

    def prioritized_insert(self, case: Case) -> Work:
        """One row, and its priority over the largest, which `add` sets."""
        buffer, state = _prioritized(case)

        def step(state: Any, _: Any, item: Any) -> Any:
            row, priority = item
            slot = state.current_index[None]
            return buffer.set_priorities(buffer.add(state, row), slot, jnp.reshape(priority, 1)), None, None

        rows = single_rows(case.schema)
        items = list(zip(rows, priorities_of(len(rows)).tolist(), strict=True))
        return _work(case, step, state, items, key=False)

    def prioritized_sample(self, case: Case) -> Work:
        buffer, state = _prioritized(case)
        return _work(case, _sampling(_weighted(buffer)), state, [None], writes=False, each=EACH // 10)

    def prioritized_update(self, case: Case) -> Work:
        """A batch and its new priorities; two calls from Python, since one call copies the tree twice."""
        buffer, state = _prioritized(case)
        priorities, draw = priorities_of(case.batch), _sampling(_weighted(buffer))

        def step(state: Any, key: Any, priorities: Any) -> Any:
            _, key, out = draw(state, key, None)
            return buffer.set_priorities(state, out[0].indices, priorities), key, out

        if case.compiled:
            return _work(case, step, state, [priorities], each=EACH // 100)
        sample = jax.jit(lambda state, key: draw(state, key, None)[1:], donate_argnums=1)
        update = jax.jit(buffer.set_priorities, donate_argnums=0)
        key, out = jax.random.PRNGKey(0), None

        def once() -> None:
            nonlocal state, key, out
            key, out = sample(state, key)
            state = update(state, out[0].indices, priorities)

        once()  # compiles
        return Work(once, lambda: jax.block_until_ready((state, key, out)), note="two calls, which is faster than one")

    def frames_bytes(self, case: Case) -> Work:
        _, state = _windows(case, cases.STACK + 1)
        return Work(lambda: sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / case.capacity)

    def frames_sample(self, case: Case) -> Work:
        return self._sampled_windows(case, cases.STACK + 1, _stacks)

    def sequences(self, case: Case) -> Work:
        def mask(window: Any) -> Any:
            ends = window["terminated"]
            return {"mask": jnp.cumsum(ends, 1) - ends == 0, **window}

        return self._sampled_windows(case, cases.SEQUENCE, mask)

    def _sampled_windows(self, case: Case, steps: int, then: Callable[[Any], Any]) -> Work:
        buffer, state = _windows(case, steps)
        step = _sampling(lambda state, key: then(buffer.sample(state, key).experience))
        return _work(case, step, state, [None], writes=False)

    def n_step(self, case: Case) -> Work:
        """An insertion and a batch, in one call."""
        buffer, state = _windows(case, cases.N_STEP)
        draw = _sampling(lambda state, key: _returns(buffer.sample(state, key).experience))

        def step(state: Any, key: Any, row: Any) -> Any:
            return draw(buffer.add(state, _lead(_lead(row))), key, None)

        return _work(case, step, state, single_rows(case.schema))

    def filled(self, case: Case) -> Any:
        return _items(case)[1]

    def saving(self, state: Any, path: Path) -> Callable[[], None]:
        def save() -> None:
            shutil.rmtree(path, ignore_errors=True)  # a vault cannot be overwritten
            vault = Vault(path.name, state.experience, str(path.parent), "v", compression=UNCOMPRESSED)
            vault.write(state, (0, jax.tree.leaves(state.experience)[0].shape[1]))

        return save

    def loading(self, state: Any, path: Path) -> Callable[[], None]:
        return lambda: jax.block_until_ready(Vault(path.name, rel_dir=str(path.parent), vault_uid="v").read())

    def empty_call(self, case: Case) -> Work:
        """Call a jitted function that adds 1 to a number, the smallest work that is really executed."""
        run = jax.jit(lambda x: x + 1, donate_argnums=0)
        number = run(jnp.int32(0))

        def once() -> None:
            nonlocal number
            number = run(number)

        return Work(once, lambda: jax.block_until_ready(number))


if __name__ == "__main__":
    answer(Flashbax())
