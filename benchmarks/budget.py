"""Checks the instruction count of each kernel against the budget in budget.json.

    python benchmarks/budget.py [--update] [--library FILE]

Builds the kernels as `pip install` does, unless a library that it built is given; and tests/csrc/budget.cc, which calls
each of them under valgrind's callgrind.
Counts are the same in every run and on every machine with the same compiler and C library: the processor extensions
that the C library would use are switched off. Instructions are not time. They reveal a change even if times differ by
less than the noise.

Exit code: 0 if each count is within 5 % of its budget. 1 if a count is above that, or below it, as the budget should
then be lowered with `--update`; also if a workload has no budget, a budget no workload, or a kernel neither.
"""

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ROOT / "benchmarks" / "budget.json"
TOLERANCE = 0.05

#: Fixes the processor-dependent choices of the C library: instructions for memcpy, strcmp and pow, which callgrind
#: counts with the kernels. The limits of malloc are its initial ones, which would otherwise change while the program
#: runs.
TUNABLES = {
    "cpu.hwcaps": "-AVX2,-AVX,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load,-FMA,-FMA4,-BMI2,-LZCNT,-MOVBE,"
    "-SSSE3,-SSE4_1,-SSE4_2,-ERMS,-FSRM,Fast_Unaligned_Load,Fast_Unaligned_Copy",
    "cpu.x86_non_temporal_threshold": "0xc0000",
    "malloc.mmap_threshold": "131072",
    "malloc.trim_threshold": "1073741824",
}
#: Functions of the C library for processor extensions: none of them may be counted.
SPECIAL = re.compile(r"\b__\w+_(?:avx|evex|fma|ssse3|sse4|erms)\w*")


def checked(command: Sequence[str | Path], **options: Any) -> str:
    """Return the standard output of a command that must succeed."""
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def build(folder: Path, built: Path | None = None) -> Path:
    """Build the program that calls the CPU's kernels, and them with setup.py's flags, or copy them if they are built.

    Return the library's path.
    """
    library = folder / "mindspore_replay" / "_kernels.akg_kernel_meta.so"
    if built is not None:
        library.parent.mkdir()
        shutil.copy(built, library)
    else:
        setup = [sys.executable, "-W", "ignore", "setup.py", "--quiet", "build_ext"]
        others = {"CC": "/bin/false", "CUDACXX": "/bin/false"}  # are left out
        checked([*setup, "--build-lib", folder, "--build-temp", folder], cwd=ROOT, env={**os.environ, **others})
        if not library.exists():
            sys.exit(f"the kernels were not built: {library.with_suffix('.txt').read_text(encoding='utf-8')}")
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    csrc = ROOT / "mindspore_replay" / "csrc"
    program = ROOT / "tests" / "csrc" / "budget.cc"
    checked([*compiler, "-std=c++17", "-O1", "-I", csrc, program, "-ldl", "-o", folder / "budget"])
    return library


def count(folder: Path, library: Path) -> dict[str, int]:
    profile = folder / "callgrind.out"
    tunables = ":".join(f"glibc.{name}={value}" for name, value in TUNABLES.items())
    options = ["--tool=callgrind", "--instr-atstart=no", "--combine-dumps=yes", f"--callgrind-out-file={profile}"]
    # Fixed-length names for any scratch folder: the address they are copied to affects later allocations.
    here = Path("/proc/self/cwd")
    command: list[str | Path] = ["valgrind", *options, here / "budget", here / library.relative_to(folder)]
    checked(command, cwd=folder, env={"PATH": os.environ["PATH"], "GLIBC_TUNABLES": tunables})
    text = profile.read_text(encoding="utf-8")
    special = sorted(set(SPECIAL.findall(text)))
    if special:
        sys.exit(f"this C library chooses by processor in spite of GLIBC_TUNABLES: {', '.join(special)}")
    return parse(text)


def parse(profile: str) -> dict[str, int]:
    """Return the instructions of each workload, from callgrind's file with one part for each."""
    return {
        name: int(total)
        for name, total in re.findall(r"^desc: Trigger: Client Request: (.*)$[\s\S]*?^totals: (\d+)$", profile, re.M)
    }


def kernels(library: Path) -> set[str]:
    """Return the names that the library exports."""
    return set(re.findall(r" T (replay_\w+)$", checked(["nm", "-D", "--defined-only", library]), re.M))


def tools(library: Path) -> dict[str, str]:
    """Return the versions that the counts depend on, besides the kernels."""
    compiler = re.search(rb"GCC: \([^)]*\) [\d.]+|[\w ]*clang version [\d.]+", library.read_bytes())
    return {
        "compiler": compiler[0].decode() if compiler else "unknown",
        "valgrind": checked(["valgrind", "--version"]).strip(),
        "C library": os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        "processor": platform.machine(),
    }


def faults(budget: Mapping[str, int], counted: Mapping[str, int], exported: set[str]) -> dict[str, str]:
    """Return the faults by workload or kernel."""
    wrong = {}
    for name in [*budget, *(name for name in counted if name not in budget)]:
        if name not in counted:
            wrong[name] = "no such workload: remove it from the budget with --update"
        elif name not in budget:
            wrong[name] = "not in the budget: add it with --update"
        elif counted[name] > budget[name] * (1 + TOLERANCE):
            wrong[name] = f"more than {TOLERANCE:.0%} above the budget"
        elif counted[name] < budget[name] * (1 - TOLERANCE):
            wrong[name] = f"more than {TOLERANCE:.0%} below the budget: lower it with --update"
    called = {name.partition(":")[0] for name in counted}
    return wrong | {name: "a kernel without a workload in tests/csrc/budget.cc" for name in sorted(exported - called)}


def show(budget: Mapping[str, int], counted: Mapping[str, int], wrong: Mapping[str, str]) -> None:
    print(f"{'instructions of':88s} {'budget':>9s} {'now':>9s}  change")
    for name in dict.fromkeys([*counted, *budget, *wrong]):
        limit, now = budget.get(name), counted.get(name)
        change = f"{now / limit - 1:+7.1%}" if limit and now else " " * 7
        note = f"  {wrong[name]}" if name in wrong else ""
        print(f"{name:88s} {limit or '-':>9} {now or '-':>9} {change}{note}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How many instructions each kernel takes, against the budget.")
    parser.add_argument("--update", action="store_true", help="make what is counted the budget")
    parser.add_argument("--library", type=Path, help="kernels that `pip install` has built, which are then counted")
    given = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: install the package valgrind (Debian: apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as scratch:
        library = build(Path(scratch), given.library)
        counted, exported, made_with = count(Path(scratch), library), kernels(library), tools(library)
    if given.update:
        BUDGET.write_text(json.dumps({"tools": made_with, "instructions": counted}, indent=1) + "\n", encoding="utf-8")
    made = json.loads(BUDGET.read_text(encoding="utf-8"))
    wrong = faults(made["instructions"], counted, exported)
    show(made["instructions"], counted, wrong)
    for name, now in made_with.items():
        if made["tools"][name] != now:
            print(f"{name}: the budget is that of {made['tools'][name]}, this is {now}; compared all the same")
    print(f"{len(counted)} workloads, faults: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
