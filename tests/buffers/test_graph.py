"""Buffers inside compiled bodies: control flow, nesting, gradients, ranges, several buffers."""

import gc
import weakref

import mindspore as ms
import pytest
from bodies import ONCE, Body, Kept, compiled, ints, make_buffer, row
from checks import cursors
from mindspore import Tensor, nn

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer


class InControlFlow(Body):
    """`while`, `if` and `for` around statements; counts by reads in the loop."""

    def construct(self, x, y, steps):
        step = self.zero
        seen = self.zero
        while step < steps:
            self.buffer.insert([x + step, y + step])
            seen = seen + self.buffer.size() * 100 + self.buffer.get_item(-1)[1]
            if step == 2:
                self.buffer.insert([x, y])
            step = step + 1
        for _ in range(2):
            self.buffer.insert([x - 1, y - 1])
        return seen, self.buffer.size(), self.buffer.get_item(-1)[1], self.buffer.get_item(0)[1]


@ONCE
def test_statements_in_control_flow(mode: str, backend: str):
    buffer = make_buffer(backend)
    call = compiled(InControlFlow(buffer), mode)
    # Numbers 50 51 52 50 53 49 49 go in; the loop sees sizes 1 2 3 5 and numbers 50 51 52 53.
    assert ints(call(*row(50), Tensor(4, ms.int32))) == [1100 + 206, 6, 49, 51]
    assert buffer.buffer[1].asnumpy().tolist() == [49, 51, 52, 50, 53, 49]
    # Sizes stay 6: 60 is seen, then 59 59.
    assert ints(call(*row(60), Tensor(1, ms.int32))) == [600 + 60, 6, 59, 53]
    assert ints(call(*row(70), Tensor(0, ms.int32))) == [0, 6, 69, 49]
    assert cursors(buffer)[2:] == (12, 0)


class UntilReady(Body):
    """`can_sample` and `full` as conditions."""

    def construct(self, x, y):
        steps = self.zero
        while not self.buffer.can_sample():
            self.buffer.insert([x, y])
            steps = steps + 1
        if self.buffer.full():
            self.buffer.reset()
            steps = steps + 100
        else:
            self.buffer.insert([x, y])
        return steps, self.buffer.size()


def test_conditions():
    buffer = make_buffer("native")
    call = ms.jit(UntilReady(buffer).construct)
    assert ints(call(*row(1))) == [2, 3]
    assert [ints(call(*row(1))) for _ in range(3)] == [[0, 4], [0, 5], [0, 6]]
    assert ints(call(*row(1))) == [100, 0]
    assert cursors(buffer) == (0, 0, 6, 6)


class UnlessNone(Body):
    """The buffer itself as a condition, for trainers where it may be None."""

    def construct(self, x, y):
        if self.buffer:
            self.buffer.insert([x, y])
        return self.buffer.size()


class Length(Body):
    def construct(self):
        return len(self.buffer)


class Loop(Body):
    def construct(self):
        total = 0
        for batch in self.buffer:
            total = total + batch[1]
        return total


def test_an_empty_buffer_is_true():
    """MindSpore leaves Cells that are false out of their owner, and so out of its Parameters."""
    buffer = make_buffer("native")
    owner = nn.SequentialCell(buffer)
    assert (len(buffer), bool(buffer)) == (0, True)
    assert "0.head" in dict(owner.parameters_and_names())
    assert int(ms.jit(UnlessNone(buffer).construct)(*row(1))) == len(buffer) == 1
    for body in (Length, Loop):
        with pytest.raises(RuntimeError, match="'len' of a buffer, and a loop over one, work only in Python: in"):
            ms.jit(body(buffer).construct)()


class Numbers(Body):
    """Python numbers among Tensors: constants of the body, and arguments."""

    def construct(self, x, number):
        self.buffer.insert([x, 7, 2, True])
        self.buffer.insert({"x": x, "real": number, "flag": False, "n": number})
        return self.buffer.get_item(0)[1:], self.buffer.get_item(1)[1:]


def test_numbers_take_the_dtype_of_their_column():
    columns = {"x": ((2,), ms.float32), "n": ((), ms.uint8), "real": ((), ms.float16), "flag": ((), ms.bool_)}
    shapes, types = zip(*columns.values())
    buffer = ReplayBuffer(2, 6, shapes, types, names=list(columns), backend="native")
    call = ms.jit(Numbers(buffer).construct)
    first, second = call(row(1)[0], 255)
    assert [value.dtype for value in second] == list(types[1:])
    assert [value.asnumpy().item() for value in first] == [7, 2.0, True]
    assert [value.asnumpy().item() for value in second] == [255, 255.0, False]


class Several(nn.Cell):
    """Buffers in a CellList that take the rows in turn."""

    def __init__(self, buffers: list[ReplayBuffer]) -> None:
        super().__init__()
        self.memories = nn.CellList(buffers)

    def construct(self, x, y):
        sizes = ()
        for memory in self.memories:
            memory.insert([x, y])
            x, y = x + 1, y + 1
            sizes = (*sizes, memory.size())
        return sizes


class Indexed(Several):
    """Buffers selected by constants, and by the counter of a loop."""

    def construct(self, x, y):
        self.memories[0].insert([x, y])
        self.memories[-1].insert([x + 1, y + 1])
        newest = ()
        for i in range(len(self.memories)):
            self.memories[i].insert([x + i, y + 10 * i])
            newest = (*newest, self.memories[i].get_item(-1)[1], self.memories[i].size())
        return newest


@pytest.mark.parametrize("mode", ["graph"], indirect=True)
def test_a_list_of_buffers_by_index(mode: str):
    buffers = [make_buffer("native") for _ in range(2)]
    call = compiled(Indexed(buffers), mode)
    assert ints(call(*row(1))) == [1, 2, 11, 2]
    assert ints(call(*row(5))) == [5, 4, 15, 4]
    assert [buffer.buffer[1].asnumpy()[:4].tolist() for buffer in buffers] == [[1, 1, 5, 5], [2, 11, 6, 15]]


def test_a_list_of_cells_cannot_be_called_cells():
    cell = nn.Cell()
    with pytest.raises(KeyError, match="cells child cell already exists"):
        cell.cells = nn.CellList([make_buffer("native")])


class Plain(Kept):
    """Buffers in a class that is no Cell, and in a dict."""

    def __init__(self) -> None:
        self.first, self.second = make_buffer("native"), make_buffer("native")
        self.by_name = {"first": self.first, "second": self.second}

    @ms.jit
    def step(self, x, y):
        self.first.insert([x, y])
        self.second.insert([x + 1, y + 1])
        self.second.insert([x + 2, y + 2])
        return self.first.size(), self.second.size(), self.first.get_item(-1)[1], self.second.get_item(-1)[1]


def test_buffers_in_a_plain_class():
    plain = Plain()
    assert ints(plain.step(*row(1))) == [1, 2, 1, 3]
    plain.by_name["first"].insert(row(9))
    assert ints(plain.step(*row(4))) == [3, 4, 4, 6]


def test_names_of_parameters_never_collide(backend: str):
    first, second = make_buffer(backend), make_buffer(backend)
    loose = [parameter.name for buffer in (first, second) for parameter in buffer.trainable_params()]
    assert loose == []
    names = [parameter.name for buffer in (first, second) for parameter in (*buffer.buffer, buffer.head, buffer.count)]
    assert len(set(names)) == len(names) == 8
    owner = Several([first, second])
    names = [name for name, _ in owner.parameters_and_names()]
    assert len(set(names)) == len(names) == 12
    assert names[0] == "memories.0.column.0"


class Train(nn.Cell):
    """Calls the operators of each number of inputs, with and without keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = PrioritizedReplayBuffer(2, 4, [()], ["int32"], max_use=9, seed=0, backend="native")

    def construct(self, x):
        self.buffer.insert([x], priority=2.0)
        self.buffer.insert([x], version=0)
        self.buffer.insert([x])
        indices = self.buffer.sample()[0]
        self.buffer.update_priorities(indices, self.buffer.info(indices)[0])
        self.buffer.update(indices, [self.buffer.get_item(indices)[0]])
        self.buffer.delete(indices)
        self.buffer.advance()
        self.buffer.reset()
        return self.buffer.can_sample()


@pytest.mark.parametrize("mode", ["graph"], indirect=True)
def test_a_cell_that_was_compiled_and_dropped_frees_the_columns(mode: str):
    dropped = []
    for _ in range(2):  # MindSpore keeps the last Cell until it compiles another
        cell = Train()
        cell(Tensor(1, ms.int32))
        dropped.append([weakref.ref(parameter) for parameter in cell.buffer.buffer])
        del cell
        gc.collect()
    assert [column() for column in dropped[0]] == [None]


class Named(nn.Cell):
    """Uses one column of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = make_buffer("native", names=["x", "y"]).insert(row(1)).insert(row(2))

    def construct(self):
        return self.buffer.sample(as_dict=True)["y"]


def test_no_warning_of_columns_that_are_not_used(capfd: pytest.CaptureFixture[str]):
    ms.jit(Named().construct)()
    assert "side effect nodes" not in "".join(capfd.readouterr())
