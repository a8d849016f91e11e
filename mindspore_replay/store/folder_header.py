"""The header of a buffer's folder: magic, checksum, format version, and JSON with schema and options.

It is written once, when the folder is made.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from .._version import __version__
from .checks import check_size
from .epochs import EpochRule
from .options import Options
from .schema import Schema
from .windows import Output, SamplePlan, WindowRule, with_ends

_MAGIC, _VERSION = b"MSREPLAY", 1
_NUMBERS = (8, 4, 4, 8)  # bytes of magic, checksum, version and length of the JSON
_START = sum(_NUMBERS)
_LONGEST = 100_000_000


class Sample(NamedTuple):
    """Contents of a sample.

    Args:
        bookkeeping (tuple[str, ...]): Names of the outputs before the columns.
        fields (tuple[str, ...]): Names of the columns, as modified by views.
        complete (bool): Whether the kernels alone draw it, without functions in Python.
        achieved_goal (Union[str, None]): Column of the goals achieved, in the state after an action. Default: ``None``.
    """

    bookkeeping: tuple[str, ...]
    fields: tuple[str, ...]
    complete: bool
    achieved_goal: str | None = None


class Header(NamedTuple):
    """Description of a buffer in a folder.

    Args:
        schema (Schema): The columns.
        options (Options): How rows are stored and drawn.
        sample (Sample): Contents of a sample.
        description (dict): Class and arguments of the buffer, as in checkpoints.
    """

    schema: Schema
    options: Options
    sample: Sample
    description: dict[str, Any]


def bad_folder(function: str, folder: Path, what: str) -> ValueError:
    """Return the error for a folder that cannot be opened."""
    return ValueError(f"For '{function}', 'folder' must hold a whole buffer, but {folder} {what}.")


def write_header(path: Path, header: Header) -> None:
    """Write a header."""
    schema, options = header.schema, header.options
    text = json.dumps(
        {
            "library_version": __version__,
            "schema": {
                "shapes": schema.shapes,
                "types": schema.dtypes,
                "names": schema.given_names,
                "late": schema.late,
            },
            "options": options._replace(plan=None, rule=None)._asdict(),  # type: ignore[arg-type]
            "plan": {**options.plan._asdict(), "outputs": [output._asdict() for output in options.plan.outputs]},
            "rule": None if options.rule is None else options.rule._asdict(),
            "sample": header.sample,
            "description": header.description,
        },
        separators=(",", ":"),
    ).encode()
    rest = _VERSION.to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(_MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest)


def read_header(folder: Path, path: Path, function: str) -> Header:
    """Read the header of a folder; raise a ValueError if it is damaged or of another kind."""
    with open(path, "rb") as file:
        data = file.read(_LONGEST)
    if data[:8] != _MAGIC:
        raise bad_folder(function, folder, "has a header that begins otherwise: it is of another kind, or altered")
    version = int.from_bytes(data[12:16], "little")
    if len(data) < _START or len(data) != _START + int.from_bytes(data[16:_START], "little"):
        raise bad_folder(function, folder, "has a header that was cut off or added to")
    if int.from_bytes(data[8:12], "little") != zlib.crc32(data[12:]):
        raise bad_folder(function, folder, "has a header that does not fit its checksum: it was altered")
    if version != _VERSION:
        raise bad_folder(function, folder, f"has the format version {version}, and this library reads {_VERSION}")
    try:
        return _parsed(json.loads(data[_START:]))
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        what = f"has a header that makes no sense ({type(error).__name__}: {error})"
        raise bad_folder(function, folder, what) from None


def _parsed(given: Any) -> Header:
    schema, options, plan, rule = (given[key] for key in ("schema", "options", "plan", "rule"))
    cls_name = str(options["cls_name"])
    weighting = options["weighting"]
    check_size(cls_name, "sample_size", plan["n"])
    if rule is not None and rule["streams"] != options["num_envs"]:
        raise ValueError(f"{rule['streams']} streams of {options['num_envs']} environments")
    plan = SamplePlan(**{**plan, "outputs": tuple(_output(one) for one in plan["outputs"])})
    columns = Schema(cls_name, *(schema[key] for key in ("shapes", "types", "names", "late")))
    made = Options(
        **{
            **options,
            "cls_name": cls_name,
            "capacity": check_size(cls_name, "capacity", options["capacity"]),
            "num_envs": check_size(cls_name, "num_envs", options["num_envs"]),
            "weighting": None if weighting is None else (float(weighting[0]), float(weighting[1])),
            "plan": plan,
            "rule": None if rule is None else with_ends(WindowRule(**rule), plan, columns),
            "epochs": None if options["epochs"] is None else EpochRule(*options["epochs"]),
            "late": tuple(options["late"]),
        }
    )
    bookkeeping, fields, complete, achieved = given["sample"]
    achieved = None if achieved is None else str(achieved)
    sample = Sample(tuple(bookkeeping), tuple(fields), bool(complete), achieved)
    return Header(columns, made, sample, given["description"])


def _output(given: Any) -> Output:
    return Output(**{**given, "lead": tuple(given["lead"])})
