"""Damaged files, full disks, killed processes, and memory."""

import errno
import gc
import itertools
import json
import os
import resource
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checkpoint_cases import RINGS, assert_same_state, filled, insert
from headers import START, checkpoint_header
from isal import isal_zlib
from safetensors.numpy import save_file

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, load, save
from mindspore_replay.checkpoint import saving
from mindspore_replay.checkpoint.files import Source
from mindspore_replay.checkpoint.saving import _Array as Array

PATH = "buffer.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any, Any]:
    """Return a file, the buffer in it, and another of its kind."""
    path = tmp_path_factory.mktemp("saved") / PATH
    buffer = filled(RINGS["views"], 30)
    save(buffer, path)
    return path.read_bytes(), buffer, filled(RINGS["views"], 9, seed=7)


def refused(content: bytes, given: Any) -> str:
    """Return the error for a file with this content, which must be a ValueError that names the file."""
    Path(PATH).write_bytes(content)
    before = given.serials.asnumpy().tolist(), given.random_state.asnumpy().tolist()
    with pytest.raises(ValueError, match=r"^For 'load'") as error:
        load(PATH, buffer=given)
    assert PATH in str(error.value)
    assert (given.serials.asnumpy().tolist(), given.random_state.asnumpy().tolist()) == before
    return str(error.value)


def test_what_errors_say(saved: tuple[bytes, Any, Any]):
    content, _, given = saved
    length = 8 + int.from_bytes(content[:8], "little")
    begin = f"For 'load', 'path' must be a whole file that 'save' wrote, but {PATH}"
    at_end, in_header = bytearray(content), bytearray(content)
    at_end[-1] ^= 1
    in_header[length - 1] ^= 1
    for damaged, what in (
        (b"", "is empty."),
        (b"{}", "begins otherwise: it is of another kind, cut off or altered."),
        (content[:20], "begins otherwise: it is of another kind, cut off or altered."),
        (content[:100], "has 100 bytes, too few for its header: it was cut off or altered."),
        (content[:-1], f"has {len(content) - 1} bytes, not {len(content)}: it was cut off or added to."),
        (content + b"1", f"has {len(content) + 1} bytes, not {len(content)}: it was cut off or added to."),
        (bytes(in_header), "has a header that does not fit its checksum: it was altered."),
        (bytes(at_end), "holds data that do not fit their checksum, in 'flags': they were altered."),
    ):
        assert refused(damaged, given) == f"{begin} {what}"


def test_other_files_of_safetensors(saved: tuple[bytes, Any, Any]):
    """Also those that hold the same arrays and claim to be of this format."""
    _, buffer, given = saved
    state = {key: np.asarray(array) for key, array in buffer.state_dict().items()}
    for metadata in (None, {"format": "mindspore_replay", "format_version": "2"}):
        save_file(state, PATH, metadata=metadata)
        refused(Path(PATH).read_bytes(), given)
    ms.save_checkpoint(buffer, PATH, format="safetensors")
    refused(Path(PATH).read_bytes(), given)
    ms.save_checkpoint(buffer, "buffer.ckpt")
    refused(Path("buffer.ckpt").read_bytes(), given)


# Malformed files with valid checksums.


def opened(content: bytes) -> tuple[dict[str, Any], dict[str, bytearray]]:
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    offsets = {key: entry["data_offsets"] for key, entry in header.items() if key != "__metadata__"}
    return header, {key: bytearray(content[length + a : length + b]) for key, (a, b) in offsets.items()}


def sealed(header: dict[str, Any], arrays: dict[str, bytearray], moved: bool = True) -> bytes:
    """Return a file with valid checksums, and, if arrays have `moved`, correct offsets."""
    data = b"".join(arrays.values())
    at = 0
    for key, array in arrays.items():
        if moved and key in header:
            header[key]["data_offsets"] = [at, at + len(array)]
        at += len(array)
    header["__metadata__"].setdefault("checksums", "")
    if header["__metadata__"]["checksums"] != "wrong":
        header["__metadata__"]["checksums"] = json.dumps({key: f"{zlib.crc32(a):08x}" for key, a in arrays.items()})
    return checkpoint_header(json.dumps(header, separators=(",", ":")).encode()) + data


def in_metadata(key: str, value: Any) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(header: dict[str, Any], arrays: dict[str, bytearray]) -> None:
        header["__metadata__"][key] = value

    return change


def in_description(**changes: Any) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(header: dict[str, Any], arrays: dict[str, bytearray]) -> None:
        description = json.loads(header["__metadata__"]["description"])
        header["__metadata__"]["description"] = json.dumps(description | changes)

    return change


def in_entry(name: str, **changes: Any) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(header: dict[str, Any], arrays: dict[str, bytearray]) -> None:
        header[name] |= changes

    return change


def in_array(name: str, code: str, *values: Any, at: int = 0) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(header: dict[str, Any], arrays: dict[str, bytearray]) -> None:
        struct.pack_into(f"<{len(values)}{code}", arrays[name], at, *values)

    return change


def without(name: str) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(header: dict[str, Any], arrays: dict[str, bytearray]) -> None:
        del header[name], arrays[name]

    return change


NONSENSE = "has a header that makes no sense"
WRONG_FILES: dict[str, tuple[Any, str]] = {
    "other version": (in_metadata("format_version", "1"), "has the format version 1, and this library reads version 2"),
    "other format": (in_metadata("format", "other"), "has the format 'other', not 'mindspore_replay'"),
    "no format": (lambda header, _: header["__metadata__"].pop("format"), NONSENSE),
    "no description": (lambda header, _: header["__metadata__"].pop("description"), NONSENSE),
    "metadata that are none": (lambda header, _: header["__metadata__"].update(description="{"), NONSENSE),
    "no buffer": (in_metadata("description", "[1, 2]"), "describes no buffer: [1, 2]"),
    "nested": (in_metadata("description", "[" * 10**5 + "]" * 10**5), NONSENSE),
    "deep": (in_metadata("description", '{"list":[' * 200 + "]}" * 200), "describes no buffer"),
    "empty": (in_metadata("description", '{"dict":{}}'), "describes no buffer: {'dict': {}}"),
    "checksums of others": (in_metadata("checksums", "wrong"), NONSENSE),
    "other class": (in_description(**{"class": "ReplayBuffer"}), "'buffer' must be what was saved"),
    "unknown class": (in_description(**{"class": "Path"}), "'buffer' must be what was saved"),
    "class that is none": (in_description(**{"class": 3}), "describes no buffer"),
    "no capacity": (in_description(capacity=0), "describes no buffer"),
    "huge capacity": (in_description(capacity=2**70), "describes no buffer"),
    "smaller capacity": (in_description(capacity=10), "has 24 rows of 30 in a capacity of 10"),
    "overlapping": (in_entry("serials", data_offsets=[8, 24]), NONSENSE),
    "backwards": (in_entry("serials", data_offsets=[16, 0]), NONSENSE),
    "huge shape": (in_entry("column.observation", shape=[2**62, 2**62]), NONSENSE),
    "negative shape": (in_entry("column.observation", shape=[-24, -40]), NONSENSE),
    "shape that is none": (in_entry("column.observation", shape="24"), NONSENSE),
    "other shape": (in_entry("column.observation", shape=[40, 24]), "expected float32 ['rows', 40], but got float32"),
    "other dtype": (in_entry("column.observation", dtype="I32"), "expected float32 ['rows', 40], but got int32"),
    "unknown dtype": (in_entry("column.observation", dtype="F128"), NONSENSE),
    "dtype that is none": (in_entry("column.observation", dtype=[]), NONSENSE),
    "entry that is none": (lambda header, _: header.update(serials=[]), NONSENSE),
    "no serials": (without("serials"), "'serials': expected int64 [2], but got nothing"),
    "no column": (without("column.reward"), "'column.reward': expected float32 ['rows'], but got nothing"),
    "no steps": (without("steps"), "'steps': expected int64 ['rows'], but got nothing"),
    # Of wrong states, which the table of misuse has, one of each part.
    "wrong count": (in_array("count", "i", 23), "the cursors must describe a ring of capacity 24"),
    "weight": (in_array("weights", "d", 7.0), "the weights must be those of its rows"),
    "clock": (in_array("clock", "q", -1), "the clocks must be those of its rows"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_files_with_right_checksums_and_wrong_content(saved: tuple[bytes, Any, Any], name: str):
    content, _, given = saved
    change, what = WRONG_FILES[name]
    header, arrays = opened(content)
    change(header, arrays)
    wrong_places = name in ("overlapping", "backwards")
    message = refused(sealed(header, arrays, not wrong_places and isinstance(header.get("serials", {}), dict)), given)
    assert what in message


def test_sealing_keeps_a_right_file_right(saved: tuple[bytes, Any, Any]):
    """Otherwise the tests above would prove nothing."""
    content, buffer, given = saved
    Path(PATH).write_bytes(sealed(*opened(content)))
    assert_same_state(load(PATH, buffer=given), buffer)
    header, arrays = opened(content)
    in_array("column.reward", "f", 77.0)(header, arrays)
    Path(PATH).write_bytes(sealed(header, arrays))
    assert float(load(PATH).get_item(0)[1]) == 77


def test_a_header_in_which_an_array_comes_twice(saved: tuple[bytes, Any, Any]):
    """Readers would differ on which one counts."""
    content, _, given = saved
    length = 8 + int.from_bytes(content[:8], "little")
    text = content[8:length].replace(b',"serials":', b',"serials":{},"serials":', 1)
    assert "a key occurs twice" in refused(checkpoint_header(text) + content[length:], given)


@pytest.mark.parametrize(
    "text",
    [
        b'"}' + b"[" * 10**6,
        b'"},"a":' + b"9" * 10**5 + b"}",
        b'"}}',
        b'"},"a":{"dtype":"F32"}}',
        b'"},"a":3}',
        b"\xff\xfe",
        b'","format":"mindspore_replay","format_version":"2"}}',
    ],
    ids=["nested", "long number", "no metadata", "half an entry", "no entry", "no text", "little"],
)
def test_headers_with_right_checksums(saved: tuple[bytes, Any, Any], text: bytes):
    assert NONSENSE in refused(checkpoint_header(START + b"0" * 8 + text), saved[2])


def test_arguments_in_a_file_that_no_constructor_takes(saved: tuple[bytes, Any, Any]):
    """A file creates only buffers and views of this library, through the checks of their constructors."""
    content, _, _ = saved
    right = json.loads(opened(content)[0]["__metadata__"]["description"])["arguments"]
    for change in (
        {"shapes": [[2**40], [], []]},
        {"shapes": 3},
        {"types": ["float32", "float32", "object"]},
        {"alpha": 7},
        {"alpha": None},
        {"other": 1},
        {"views": [{"view": "HindsightRelabel", "arguments": {}}]},
        {"views": [{"view": "os.system", "arguments": {"command": "touch owned"}}]},
        {"views": [{"arguments": {}}]},
        {"views": [{"view": "NStep", "arguments": {"n": 0, "gamma": 1}}]},
        {"views": [{"view": "NStep", "arguments": []}]},
        {"views": 3},
    ):
        header, arrays = opened(content)
        in_description(arguments=right | change)(header, arrays)
        Path(PATH).write_bytes(sealed(header, arrays))
        with pytest.raises(ValueError, match=f"^For 'load', (no buffer can be made from )?{PATH}"):
            load(PATH)
    for arguments in (None, [], {"sample_size": 3}):
        header, arrays = opened(content)
        in_description(arguments=arguments)(header, arrays)
        Path(PATH).write_bytes(sealed(header, arrays))
        with pytest.raises(ValueError, match=f"^For 'load'.*{PATH}"):
            load(PATH)


def test_random_state_of_rows_with_right_checksums(saved: tuple[bytes, Any, Any]):
    """A state that is accepted is consistent."""
    content, _, given = saved
    generator = np.random.default_rng(1)
    outcomes = set()
    for _ in range(150):
        header, arrays = opened(content)
        name = generator.choice([name for name in arrays if "." not in name])
        array = arrays[name]
        at, size = generator.integers(len(array)), generator.integers(1, 9)
        array[at : at + size] = generator.bytes(len(array[at : at + size]))
        Path(PATH).write_bytes(sealed(header, arrays))
        try:
            load(PATH, buffer=given)
        except ValueError as error:
            assert PATH in str(error)  # noqa: PT017
            outcomes.add("refused")
        else:
            given.check_valid()
            insert(given, 2)
            if given.can_sample():
                given.sample()
            given.check_valid()
            outcomes.add("loaded")
    assert outcomes == {"refused", "loaded"}


# Writing.


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Make the system refuse to write files beyond 16 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def large(rows_: int = 100) -> ReplayBuffer:
    buffer = ReplayBuffer(2, 200, [(500,)], ["float32"], seed=0)
    buffer.insert([np.zeros((rows_, 500), np.float32)])
    return buffer


def test_a_disk_that_is_full(request: pytest.FixtureRequest):
    buffer = large()
    save(buffer, PATH)
    before = buffer.state_dict()
    content = Path(PATH).read_bytes()
    buffer.insert([np.ones((50, 500), np.float32)])
    request.getfixturevalue("small_disk")
    with pytest.raises(OSError, match=rf"For 'save', .*{PATH}.* could not be written and is what it was before: ") as e:
        save(buffer, PATH)
    assert e.value.errno == errno.EFBIG
    assert [entry.name for entry in Path().iterdir()] == [PATH]
    assert Path(PATH).read_bytes() == content
    np.testing.assert_array_equal(load(PATH).state_dict()["serials"], before["serials"])


def on_chunk(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], Any]) -> None:
    """Call `do` once while a file is written."""
    numbers, real = itertools.count(1), saving.write_all

    def watched(chunks: Iterable[Any]) -> Iterator[Any]:
        for chunk in chunks:
            if next(numbers) == number:
                do()
            yield chunk

    monkeypatch.setattr(saving, "write_all", lambda file, chunks, *more: real(file, watched(chunks), *more))


def handles(buffer: Any) -> np.ndarray:
    return int(buffer.serials.asnumpy()[0]) - 1 - np.arange(5)


CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "insert": ("views", lambda buffer: insert(buffer, 1)),
    "update_priorities": (
        "views",
        lambda buffer: buffer.update_priorities(handles(buffer), int(buffer.serials.asnumpy()[0])),
    ),
    "update": ("views", lambda buffer: buffer.update(handles(buffer), {"reward": np.zeros(5, np.float32)})),
    "delete": ("views", lambda buffer: buffer.delete(handles(buffer)[-3:-1])),
    "advance": ("views", lambda buffer: buffer.advance()),
    "sample": ("views", lambda buffer: buffer.sample()),
    "sample without weights": ("uniform", lambda buffer: buffer.sample()),
    "count uses": ("limits", lambda buffer: buffer.sample()),
    "end_episodes": ("episode", lambda buffer: buffer.end_episodes()),
    "set_window": ("elastic", lambda buffer: buffer.set_window(int(buffer.window.asnumpy()[0]) + 1)),
    "reset": ("views", lambda buffer: buffer.reset()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_buffer_that_changes_while_it_is_written(monkeypatch: pytest.MonkeyPatch, change: str):
    """A compiled graph of another thread can do this, as it holds no lock."""
    kind, apply = CHANGES[change]
    buffer = filled(RINGS[kind], 40)  # so that the rows below end no episode
    save(buffer, PATH)
    content = Path(PATH).read_bytes()
    for number in (6, 15) if change == "end_episodes" else (1, 4, min(15, len(buffer.state_dict()) - 1)):
        insert(buffer, 1)
        with monkeypatch.context() as patch:
            on_chunk(patch, number, lambda: apply(buffer))
            with pytest.raises(RuntimeError, match=r"^For 'save', 'buffer' must not change while it is written, but "):
                save(buffer, PATH)
        assert Path(PATH).read_bytes() == content
        assert len(list(Path().iterdir())) == 1


def updating(buffer: Any, reward: float) -> tuple[Any, tuple[ms.Tensor, ms.Tensor]]:
    """Return a graph that updates five stored rows, compiled, and its inputs."""

    @ms.jit
    def update(handles, rewards):
        return buffer.update(handles, {"reward": rewards})

    given = ms.Tensor(handles(buffer) - 2), ms.Tensor(np.full(5, reward, np.float32))
    update(*given)
    return update, given


def test_graphs_wait_until_a_folder_is_saved(monkeypatch: pytest.MonkeyPatch):
    """Both end: the save must not wait for a graph that waits for it."""
    buffer = filled(RINGS["limits"], storage="./rows")
    update, _ = updating(buffer, 0)
    before = buffer.state_dict()
    given = ms.Tensor(handles(buffer)), ms.Tensor(np.full(5, 77, np.float32))
    other = threading.Thread(target=lambda: update(*given))
    on_chunk(monkeypatch, 3, other.start)
    save({"one": buffer, "other": filled(RINGS["uniform"])}, PATH)
    other.join()
    saved = load(PATH)["one"].state_dict()
    assert all(np.array_equal(saved[key], before[key]) for key in ("column.reward", "serials", "use_counts"))
    assert buffer.get_item(-1)[1] == 77
    buffer.close()


@pytest.mark.parametrize("way", ["load", "load_state_dict"])
def test_graphs_wait_until_a_state_is_loaded_into_a_folder(monkeypatch: pytest.MonkeyPatch, way: str):
    buffer = filled(RINGS["limits"], storage="./rows")
    update, given = updating(buffer, 77)
    save(buffer, PATH)
    state, real = buffer.state_dict(), buffer.state.begin_replacing
    other = threading.Thread(target=lambda: update(*given))

    def begin(arrays: Any) -> Any:
        other.start()
        other.join(0.1)
        assert other.is_alive()
        return real(arrays)

    monkeypatch.setattr(type(buffer.state), "begin_replacing", lambda _, arrays: begin(arrays))
    load(PATH, buffer=buffer) if way == "load" else buffer.load_state_dict(state)
    other.join()
    loaded = buffer.state_dict()
    assert all(np.array_equal(loaded[key], state[key]) for key in ("count", "use_counts", "priorities"))
    buffer.check_valid()
    buffer.close()


def test_checksums_are_those_of_the_written_bytes(monkeypatch: pytest.MonkeyPatch):
    """Also if memory changes between the checksum and the write, or during either."""
    buffer, real = large(), isal_zlib.crc32

    def crc32(data: Any, value: int = 0) -> int:
        buffer.buffer[0].asnumpy()[...] += 1
        return real(data, value)

    with monkeypatch.context() as patch:
        patch.setattr(isal_zlib, "crc32", crc32)
        save(buffer, PATH)
    assert load(PATH).size() == 100


def test_calls_from_python_wait(monkeypatch: pytest.MonkeyPatch):
    buffer = filled(RINGS["prioritized"])
    before = buffer.state_dict()
    other = threading.Thread(target=lambda: insert(buffer, 1))

    def begin() -> None:
        other.start()
        other.join(0.2)
        assert other.is_alive()

    on_chunk(monkeypatch, 3, begin)
    save(buffer, PATH)
    other.join()
    assert int(buffer.serials.asnumpy()[0]) == before["serials"][0] + 1
    assert load(PATH).state_dict()["serials"].tolist() == before["serials"].tolist()


def test_two_saves_to_one_path_at_once(monkeypatch: pytest.MonkeyPatch):
    """The file is that of the second; the first raises that it has none."""
    first, second = filled(RINGS["uniform"]), filled(RINGS["uniform"], 40, seed=1)
    real = saving.write_all

    def save_other() -> None:
        monkeypatch.setattr(saving, "write_all", real)
        save(second, PATH)

    on_chunk(monkeypatch, 3, save_other)
    with pytest.raises(FileNotFoundError, match="could not be written and is what it was before"):
        save(first, PATH)
    assert_same_state(load(PATH), second)


def test_a_file_that_is_replaced_while_it_is_loaded(monkeypatch: pytest.MonkeyPatch):
    """The loaded state is the one that was saved when the load began."""
    old, new = large(50), large(60)
    save(old, PATH)
    real = Source.array

    def replace(source: Source, *given: Any) -> np.ndarray:
        monkeypatch.setattr(Source, "array", real)
        save(new, PATH)
        return real(source, *given)

    monkeypatch.setattr(Source, "array", replace)
    assert_same_state(load(PATH), old)
    assert_same_state(load(PATH), new)


def test_what_killed_saves_left_is_removed():
    """And nothing else beside the file."""
    others = [f"{PATH}.1", f"{PATH}.tmp", f"{PATH}.0123456789abcdef.tmp.txt", "other.0123456789abcdef.tmp"]
    for name in (*others, f"{PATH}.0123456789abcdef.tmp"):
        Path(name).touch()
    save(filled(RINGS["uniform"]), PATH)
    assert sorted(entry.name for entry in Path().iterdir()) == sorted([PATH, *others])


def test_a_file_is_on_the_disk_before_it_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The power may fail at any moment: first the file is synced, then its name, then the folder of the name."""
    buffer, path, calls = filled(RINGS["uniform"]), tmp_path / "buffer.safetensors", []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def record_replace(source: Any, target: Any) -> None:
        calls.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    save(buffer, path)
    assert calls == ["file", "name", "folder"]


# Memory.

MEGABYTES = 160
CLEAR = Path("/proc/self/clear_refs")


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def peak(call: Callable[[], Any]) -> int:
    """Return the maximum growth of the resident set, in bytes."""
    gc.collect()
    before = resident("VmRSS")
    CLEAR.write_text("5")
    kept = call()
    grown = resident("VmHWM") - before
    del kept
    return grown


def can_measure() -> bool:
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not can_measure(), reason="/proc/self/clear_refs cannot be written here")
def test_memory(monkeypatch: pytest.MonkeyPatch):
    """Saving needs no second copy, and loading one; the check detects a save that copies."""
    n = MEGABYTES << 10
    buffer = PrioritizedReplayBuffer(4, n, [(1020,), ()], ["uint8", "int32"], seed=0)
    for begin in range(0, n, 1 << 12):
        buffer.insert([np.full((1 << 12, 1020), begin >> 12, np.uint8), np.arange(begin, begin + 4096, dtype=np.int32)])
    assert buffer.nbytes > MEGABYTES << 20
    limit = buffer.nbytes // 10
    assert peak(lambda: save(buffer, PATH)) < limit
    assert peak(lambda: load(PATH, buffer=buffer)) < 2 * limit
    assert buffer.nbytes // 2 < peak(lambda: load(PATH)) < buffer.nbytes + limit
    chunks = Array.chunks
    monkeypatch.setattr(Array, "chunks", lambda self: iter([b"".join(map(bytes, chunks(self)))]))
    assert peak(lambda: save(buffer, PATH)) > limit
