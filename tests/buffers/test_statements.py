"""The statement `buffer.insert(...)` in compiled bodies: reads in order, by any name, beside real lists."""

import mindspore as ms
import pytest
from bodies import ONCE, Body, compiled, ints, make_buffer, row
from checks import cursors
from mindspore import nn

from mindspore_replay import ReplayBuffer


class ThroughAttribute(Body):
    def construct(self, x, y):
        before = self.buffer.size()
        self.buffer.insert([x, y])
        first = self.buffer.get_item(-1)[1]
        self.buffer.insert([x + 1, y + 1])
        return before, self.buffer.size(), first, self.buffer.get_item(-1)[1], self.buffer.get_item(0)[1]


class ThroughLocalName(Body):
    def construct(self, x, y):
        memory = self.buffer
        before = memory.size()
        memory.insert([x, y])
        first = memory.get_item(-1)[1]
        memory.insert([x + 1, y + 1])
        return before, memory.size(), first, memory.get_item(-1)[1], memory.get_item(0)[1]


class ThroughNestedCell(nn.Cell):
    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.inner = Body(buffer)

    def construct(self, x, y):
        before = self.inner.buffer.size()
        self.inner.buffer.insert([x, y])
        first = self.inner.buffer.get_item(-1)[1]
        self.inner.buffer.insert([x + 1, y + 1])
        newest, oldest = self.inner.buffer.get_item(-1)[1], self.inner.buffer.get_item(0)[1]
        return before, self.inner.buffer.size(), first, newest, oldest


class ByAdd(Body):
    def construct(self, x, y):
        before = self.buffer.size()
        self.buffer.add([x, y])
        first = self.buffer.get_item(-1)[1]
        self.buffer.add([x + 1, y + 1])
        return before, self.buffer.size(), first, self.buffer.get_item(-1)[1], self.buffer.get_item(0)[1]


class ByBoundMethod(Body):
    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__(buffer)
        self.put, self.size, self.get = buffer.insert, buffer.size, buffer.get_item

    def construct(self, x, y):
        before = self.size()
        self.put([x, y])
        first = self.get(-1)[1]
        self.put([x + 1, y + 1])
        return before, self.size(), first, self.get(-1)[1], self.get(0)[1]


STATEMENTS = [ThroughAttribute, ThroughLocalName, ThroughNestedCell, ByAdd, ByBoundMethod]
#: How a statement is parsed does not depend on the backend, the order of its operators does: composite graphs, which
#: compile slowly, have a body with a method of the buffer and one with a bound method.
PLACES = [
    *[(body, "native", ("graph", "pynative")[i % 2]) for i, body in enumerate(STATEMENTS)],
    (ByBoundMethod, "composite", "graph"),
]


@pytest.mark.parametrize(("body", "backend", "mode"), PLACES, indirect=["mode"])
def test_reads_come_in_the_order_of_the_statements(body: type, mode: str, backend: str):
    buffer = make_buffer(backend, names=["x", "y"])
    cell = body(buffer)
    call = compiled(cell, mode)
    assert ints(call(*row(10))) == [0, 2, 10, 11, 10]
    assert ints(call(*row(20))) == [2, 4, 20, 21, 10]
    assert ints(call(*row(30))) == [4, 6, 30, 31, 10]
    assert ints(call(*row(40))) == [6, 6, 40, 41, 20]
    assert cursors(buffer) == (2, 6, 8, 0)
    inner = getattr(cell, "inner", cell)
    assert inner.buffer is buffer
    assert type(buffer.buffer).__name__ == "ParameterTuple"


class BesideListMethods(Body):
    """Real lists that are modified in place; their `insert` takes two arguments."""

    def construct(self, x, y):
        names = [x]
        names.append(x + 1)
        names.insert(0, x - 1)
        self.buffer.insert([x, y])
        rows = [y, y + 5]
        rows.insert(1, y + 3)
        rows.reverse()
        memory = self.buffer
        memory.insert([names[0], rows[0]])
        rows.extend([y + 9])
        memory.insert([names[2], rows[3]])
        return len(names), len(rows), names[0][0], names[2][0], rows[0], rows[1], rows[3], memory.size()


# MindSpore evaluates a graph that modifies a list or an attribute in place a second time, and has lost the Python part
# of every `ops.Custom` by then.
LOST = pytest.mark.xfail(raises=RuntimeError, strict=True, reason="The prim is not a PrimitivePy. Prim name: Custom")
IN_PLACE = pytest.mark.parametrize(
    ("mode", "backend"), [("graph", "composite"), pytest.param("graph", "native", marks=LOST)], indirect=["mode"]
)


@IN_PLACE
def test_list_methods_in_the_same_body(mode: str, backend: str):
    buffer = make_buffer(backend)
    assert ints(compiled(BesideListMethods(buffer), mode)(*row(10))) == [3, 4, 9, 11, 15, 13, 19, 3]
    assert buffer.buffer[0].asnumpy()[:3].tolist() == [[10, 10], [9, 9], [11, 11]]
    assert buffer.buffer[1].asnumpy()[:3].tolist() == [10, 15, 19]


def test_list_methods_with_native_kernels_in_a_full_graph():
    """The workaround of the documentation."""
    cell = BesideListMethods(make_buffer("native"))
    assert ints(ms.jit(cell.construct, fullgraph=True)(*row(10))) == [3, 4, 9, 11, 15, 13, 19, 3]
    assert cell.buffer.buffer[1].asnumpy()[:3].tolist() == [10, 15, 19]


class InsertTwice(Body):
    def construct(self, x, y):
        self.buffer.insert([x, y]).insert([x, y])
        return self.buffer.size()


class AddTwice(Body):
    """A Tensor would have a method `add`."""

    def construct(self, x, y):
        count = self.buffer.add([x, y]).add([x, y])
        return self.buffer.size(), count


class InLoop(Body):
    def construct(self, x, y):
        turns = 0
        while turns < 2:
            self.buffer.advance().insert([x, y])
            turns = turns + 1
        return self.buffer.size()


class InBranch(Body):
    def construct(self, x, y):
        if y > 0:
            self.buffer.reset().insert([x, y])
        return self.buffer.size()


CHAINS = [InsertTwice, AddTwice, InLoop, InBranch]


@pytest.mark.parametrize(
    ("body", "backend", "mode"),
    [(body, "native", ("graph", "pynative")[i % 2]) for i, body in enumerate(CHAINS)],
    indirect=["mode"],
)
def test_chained_calls_are_refused(mode: str, backend: str, body: type[Body]):
    buffer = make_buffer(backend, weighted=True)
    with pytest.raises(AttributeError, match=r"[Tt]uple' object has no attribute '"):
        compiled(body(buffer), mode)(*row(1))
    assert buffer.size() == 0


class Returned(Body):
    def construct(self, x, y):
        return self.buffer.insert([x, y])


@ONCE
def test_insert_gives_the_rows_stored_in_a_compiled_body(mode: str, backend: str):
    step = compiled(Returned(make_buffer(backend)), mode)
    assert [int(count) for number in (1, 2) for count in step(*row(number))] == [1, 2]
