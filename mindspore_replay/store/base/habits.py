"""Errors for calls in the form of another library, with what to write here."""

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

from .mixins import mixin

#: Names that other libraries have for the number of rows of a sample.
_SIZES = ("batch_size", "sample_size", "batch", "size", "num_samples", "n_samples", "n", "k", "num")
#: Keyword arguments of `insert`.
_OF_INSERT = ("priority", "end", "final", "version", "with_indices")

#: Names that other libraries have for arguments.
_ELSEWHERE = {
    **dict.fromkeys(("size", "buffer_size", "max_size", "maxlen", "max_length", "memory_size"), "capacity"),
    **dict.fromkeys(("total_size", "replay_size", "replay_capacity"), "capacity"),
    **dict.fromkeys(("batch_size", "batch", "minibatch_size", "sample_batch_size", "train_batch_size"), "sample_size"),
    **dict.fromkeys(("shape", "obs_shape", "observation_shape"), "shapes"),
    **dict.fromkeys(("dtype", "dtypes"), "types"),
    **dict.fromkeys(("n_step", "n_steps", "nstep"), "views"),
    **dict.fromkeys(("seq_len", "seq_length", "trace_length"), "sequence_length"),
}
#: Arguments of some classes, with what to do in the others.
_NEEDLESS = {
    "ordered": "leave it out: only ReplayBuffer has it, and rows are equally likely either way",
    "replace": "leave it out: this class draws in one way",
}


_Class = TypeVar("_Class", bound=type)


def _in_graph(self: object, *_given: object, **_named: object) -> NoReturn:
    raise TypeError(
        "A compiled graph cannot use a buffer of mindspore_replay.host, an attached or a sharded one: call its methods "
        "from Python, and pass the batch to the graph."
    )


def only_from_python(cls: _Class) -> _Class:
    """Let MindSpore's compiler, which reads what a method wraps, raise an error for the public methods of a class."""
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            method.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
            method.__wrapped__ = _in_graph  # type: ignore[attr-defined]
    return cls


#: Attributes that follow from the constructor's arguments, or are the state, beside those that are arguments.
_READ_ONLY = {
    *("achieved_goal", "buffer", "capacity", "columns", "count", "has_episodes", "head", "layout", "names", "num_envs"),
    *("options", "prioritized", "random_state", "sample_size", "serials", "shapes", "sources", "spec", "types"),
    *("updates", "weighted"),
}


@functools.cache
def _read_only(cls: type) -> set[str]:
    ours = (base for base in cls.__mro__ if base.__module__.startswith("mindspore_replay") and "__init__" in vars(base))
    return _READ_ONLY.union(*(inspect.signature(vars(base)["__init__"]).parameters for base in ours))


def refuse_change(buffer: Any, name: str, value: object) -> None:
    """Raise an AttributeError for an attribute that follows from how a buffer was made."""
    if "_front" in vars(buffer) and name in _read_only(type(buffer)):  # type: ignore[arg-type]
        way_out = f"give the constructor of another {type(buffer).__name__} other arguments"
        if name == "sample_size":
            way_out = f"write {buffer._OTHER_SIZE.format(value)}"  # noqa: SLF001  of this package
        elif name == "window":
            way_out = f"call set_window({value})"
        raise AttributeError(f"For '{type(buffer).__name__}', '{name}' is read-only, but got {value!r}: {way_out}.")


def refuse_iteration(buffer: object) -> NoReturn:
    """Raise the TypeError of a loop over a buffer."""
    raise TypeError(
        f"For '{type(buffer).__name__}', a buffer cannot be iterated: sample() returns a batch, and "
        "get_item(range(len(buffer))) returns all rows, the oldest first. For epochs use "
        "EpochReplayBuffer.minibatches()."
    )


def refuse_item(buffer: object, index: object) -> NoReturn:
    """Raise the TypeError of a row by ``[...]``."""
    raise TypeError(f"For '{type(buffer).__name__}', rows are read by get_item, not by [...]: get_item({index!r}).")


@mixin
class NoContainer:
    """What is no buffer of one store refuses too the syntax of containers, and to be another than it was made."""

    #: Code for a sample of ``{}`` rows, for errors.
    _OTHER_SIZE: ClassVar[str] = "with_sample_size({}).sample()"

    def __setattr__(self, name: str, value: object) -> None:
        refuse_change(self, name, value)
        super().__setattr__(name, value)

    __iter__ = refuse_iteration

    def __getitem__(self, index: object) -> NoReturn:
        refuse_item(self, index)


def package_of(value: object) -> str:
    """Return the module of a buffer, a mixture or a limiter, of which there is one for Tensors and one for arrays."""
    return "mindspore_replay" if hasattr(type(value), "parameters_and_names") else "mindspore_replay.host"


@functools.lru_cache(256)
def _parameters(method: Callable[..., object]) -> tuple[list[str], bool]:
    """Return the names of a method's arguments, and whether it takes any keyword."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return [p.name for p in parameters], any(p.kind == p.VAR_KEYWORD for p in parameters)


def check_arguments(cls: type, names: Iterable[str]) -> None:
    """Raise a TypeError that names the arguments that a constructor does not have, and what is meant.

    Args:
        cls (type): The class. If it accepts any argument, nothing is wrong here.
        names (Iterable[str]): Names of keyword arguments.
    """
    allowed, takes_any = _parameters(cls.__init__)  # type: ignore[misc]
    unknown = [f"{name!r}{hint(name, allowed)}" for name in names if name not in allowed]
    if unknown and not takes_any:
        raise TypeError(f"For '{cls.__name__}', there are unknown arguments: {'; '.join(unknown)}.")


def hint(word: str, allowed: Iterable[str], before: str = "") -> str:
    """Return a hint to what an unknown word means: another library's name for a known one, or a similar one."""
    allowed = list(allowed)
    if _ELSEWHERE.get(word) in allowed:
        return f" (here '{before}{_ELSEWHERE[word]}')"
    if word in _NEEDLESS:
        return f" ({_NEEDLESS[word]})"
    matches = difflib.get_close_matches(word, allowed, n=1)
    return f" (the nearest is '{before}{matches[0]}')" if matches else ""


def wrong_insert(
    cls_name: str,
    names: Sequence[str] | None,
    columns: int,
    exp: object,
    misplaced: Collection[object],
    unknown: Collection[str],
) -> TypeError:
    """Return the error for an insertion with other arguments than `insert` has.

    Args:
        cls_name (str): Class of the buffer.
        names (Union[Sequence[str], None]): Names of the columns that are not late, if they have any.
        columns (int): Their number.
        exp (object): The first argument, or ``None`` if there is none.
        misplaced (Collection): Further positional arguments.
        unknown (Collection[str]): Names of unknown keyword arguments.
    """
    row = f"[{', '.join(names)}]" if names else f"[{', '.join('abcdefghij'[:columns])}{', ...' * (columns > 10)}]"
    named = "{" + ", ".join(f"{name!r}: ..." for name in names) + "}" if names else ""
    start = f"For '{cls_name}', 'insert' takes"
    if unknown and (exp is None or set(unknown) & set(names or ())):
        written = f"insert({named})" if names else f"insert({row}), or a dict if the buffer is made with 'names'"
        return TypeError(
            f"{start} a row or a batch as one list or dict, but got columns by keyword, {sorted(unknown)}: write "
            f"{written}."
        )
    if unknown:
        return TypeError(f"{start} {', '.join(_OF_INSERT)} by keyword, but got {sorted(unknown)}.")
    if isinstance(exp, (list, tuple, Mapping)):
        return TypeError(
            f"{start} one positional argument, the rows, but got {1 + len(misplaced)}: write the others by keyword, as "
            "insert(rows, priority=...)."
        )
    or_named = f" or insert({named})" if names else ""
    return TypeError(
        f"{start} a row or a batch as one list or dict, but got {1 + len(misplaced)} arguments: write "
        f"insert({row}){or_named}."
    )


def wrong_sample(
    cls_name: str, buffer: Any, misplaced: Sequence[object], unknown: Mapping[str, object], other_size: str
) -> TypeError:
    """Return the error for a sample with other arguments than `sample` has.

    Args:
        cls_name (str): Class to name.
        buffer (Any): The buffer.
        misplaced (Sequence): Positional arguments.
        unknown (Mapping[str, Any]): Unknown keyword arguments, ``...`` for values that are not known.
        other_size (str): Code for a sample of ``{}`` rows.
    """
    parameters = inspect.signature(type(buffer).sample).parameters.values()
    accepted = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY or p.name == "sample_range"]
    shown = [*map(_shown, misplaced), *(f"{name}={_shown(value)}" for name, value in unknown.items())]
    message = f"For '{cls_name}', 'sample' takes {', '.join(accepted)} by keyword, but got sample({', '.join(shown)})."
    sizes = [
        *(value for value in misplaced[:1] if not isinstance(value, float)),
        *(value for name, value in unknown.items() if name in _SIZES),
    ]
    if sizes:
        size = sizes[0] if type(sizes[0]) is int and sizes[0] > 0 else "n"
        message += (
            f" A sample always has sample_size={buffer.sample_size} rows: write sample(), or for {size} rows "
            f"{other_size.format(size)}."
        )
    return TypeError(message)


def _shown(value: object) -> str:
    return "..." if value is ... or value == "..." else repr(value)
