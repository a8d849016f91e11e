"""Cells have the methods of the buffers on arrays, and add Parameters and bodies for graphs."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from mindspore import nn

import mindspore_replay
from mindspore_replay import host

CLASSES = [name for name in host.__all__ if name.endswith("Buffer") or name in ("MixedReplay", "ReplayQueue")]
#: Of a Cell alone, with what `nn.Cell` needs, or of the memory of a device.
OF_CELLS = {"state", "nbytes", "state_dict", "load_state_dict"}
#: What the package alone asks for.
OF_STATE = {
    *("begin_replacing", "check_state", "checked_state", "exclusive", "public_class", "load_checked", "constructor"),
    *("runs_graphs", "snapshot", "sole_use", "state_arrays", "turn_to_sample"),
}


def members(cls: type) -> dict[str, Any]:
    """Return the public members of a class, without those of a Cell."""
    names = {name for name in dir(cls) if not name.startswith("_")} | {"__len__", "__bool__", "__repr__", "__getitem__"}
    return {
        name: inspect.getattr_static(cls, name) for name in names - (set(dir(nn.Cell)) - set(dir(host.ReplayBuffer)))
    }


def code(member: Any) -> Any:
    """Return what a method or a property runs."""
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    return getattr(function, "__code__", function)


@pytest.mark.parametrize("name", CLASSES)
def test_a_cell_runs_the_methods_of_the_buffer_on_arrays(name: str):
    cell, arrays = (members(getattr(module, name)) for module in (mindspore_replay, host))
    assert set(cell) - OF_CELLS - {"add_flags", "parameters_and_names"} == set(arrays) - OF_CELLS
    for key in set(arrays) - OF_CELLS:
        assert code(cell[key]) is code(arrays[key]), key
        if inspect.isfunction(arrays[key]):
            assert inspect.signature(cell[key]) == inspect.signature(arrays[key]), key
            assert cell[key].__doc__ == arrays[key].__doc__, key


def ours(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "mindspore_replay"]


@pytest.mark.parametrize("module", [mindspore_replay, host], ids=["cells", "arrays"])
def test_a_class_derives_from_few(module: Any):
    for name in module.__all__:
        public = getattr(module, name)
        if inspect.isclass(public):
            assert len(ours(public)) <= 6, (name, ours(public))


@pytest.mark.parametrize("module", [mindspore_replay, host], ids=["cells", "arrays"])
def test_what_the_package_asks_is_in_the_state(module: Any):
    buffer = module.ReplayBuffer(1, 4, [()], ["int32"])
    assert set(dir(buffer.state)) >= OF_STATE
    assert not OF_STATE & set(dir(buffer))
    assert (buffer.state.public_class, buffer.state.runs_graphs) == ("ReplayBuffer", False)


#: Methods that not every buffer offers, with arguments.
NOT_OF_ALL: dict[str, tuple[Any, ...]] = {
    **{"update": ([0], [[1]]), "delete": ([0],), "info": ([0],), "advance": (), "update_priorities": ([0], [1.0])},
    **{"end_episodes": (), "sample_packed": (), "flush": ()},
}


@pytest.mark.parametrize("module", [mindspore_replay, host], ids=["cells", "arrays"])
def test_a_buffer_lists_the_methods_that_it_offers(module: Any, tmp_path: Path):
    assert "flush" in dir(module.ReplayBuffer.__new__(module.ReplayBuffer))
    plain, offered = module.ReplayBuffer(1, 4, [()], ["int32"]), set()
    tokens = module.Column((None,), "int32", longest=2, items=8)
    for buffer in (
        plain,
        module.PrioritizedReplayBuffer(1, 4, [()], ["int32"], storage=tmp_path / "rows"),
        module.SequenceReplayBuffer(1, 4, [()], ["int32"], sequence_length=1),
        module.ReplayBuffer(1, 4, columns=[tokens]),
    ):
        buffer.insert([[[1]] if buffer.spec.columns.length_groups else [1]])
        offered |= set(dir(buffer))
        for name in NOT_OF_ALL.keys() - set(dir(buffer)):
            with pytest.raises((RuntimeError, ValueError), match="need"):
                getattr(buffer, name)(*NOT_OF_ALL[name])
    assert offered > NOT_OF_ALL.keys()
    assert len({name for name in dir(plain) if not name.startswith("_")} - set(dir(nn.Cell()))) <= 25


def test_a_cell_has_parameters_and_loads_from_its_owner():
    buffer = mindspore_replay.ReplayBuffer(1, 4, [()], ["int32"], seed=0).insert([7])
    assert set(buffer.state.state_parameters()) == set(buffer.state.state_arrays())
    arrays = {key: parameter.asnumpy() for key, parameter in buffer.state.state_parameters().items()}
    other = mindspore_replay.ReplayBuffer(1, 4, [()], ["int32"], seed=1)
    other.state.load_from_cell(arrays)
    assert other.get_item(0)[0].asnumpy() == 7
