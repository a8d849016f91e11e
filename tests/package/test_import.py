"""An import changes nothing of MindSpore or of the program."""

import json
from pathlib import Path

from forks import run_each

#: Compares what a program can see, before and after an import, and adds with ``+=`` by a switch that is set after it.
PROGRAM = """
import gc, importlib, json, logging, os, pkgutil, random, signal, sys, warnings
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.graph import api
from mindspore.graph._parse import compile_config

seeds, made = importlib.import_module("mindspore.common.seed"), []

def watch(owner, name):
    function = getattr(owner, name)
    def watched(*arguments, **keywords):
        made.append(f"{owner.__name__}.{name}")
        return function(*arguments, **keywords)
    setattr(owner, name, watched)

watch(nn.Cell, "__init__"), watch(Parameter, "__init__"), watch(api._JitExecutor, "compile")
watch(api._CellGraphExecutor, "compile")

def state():
    context = {}
    for key in (*ms.context._Context.setters, "mode", "device_target", "device_id"):
        try:
            context[key] = str(ms.get_context(key))
        except (ValueError, AttributeError, KeyError) as error:
            context[key] = type(error).__name__
    return {
        "environment": dict(os.environ), "context": context, "seeds": str((seeds._GLOBAL_SEED, seeds._KERNEL_SEED)),
        "generator": ms.default_generator.get_state().asnumpy().tolist(),
        "switches": {key: str(value) for key, value in vars(compile_config).items() if key.isupper()},
        "signals": [str(signal.getsignal(one)) for one in signal.valid_signals()],
        "random": [str(random.getstate()), str(np.random.get_state())], "numpy": str(np.geterr()),
        "warnings": len(warnings.filters), "logging": str([logging.root.handlers, logging.root.level]),
        "gc": gc.get_threshold(), "folder": os.getcwd(), "limit": sys.getrecursionlimit(), "made": list(made),
    }

before = state()
exec(sys.argv[1])
package = sys.modules.get("mindspore_replay")
for module in pkgutil.walk_packages(package.__path__, "mindspore_replay.") if package else ():
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = state()
compile_config.JIT_ENABLE_AUGASSIGN_INPLACE = "0"

class Adds(nn.Cell):
    def __init__(self):
        super().__init__()
        self.zero, self.one = Tensor(0, ms.int32), Tensor(1, ms.int32)

    def construct(self):
        total = self.zero
        total += self.one
        return total

ms.set_context(mode=ms.GRAPH_MODE)
adds = Adds()
print(json.dumps([[key for key in before if before[key] != after[key]], [int(adds()) for _ in range(3)]]))
"""


#: What is run, what it changes, and the sums afterwards.
LINES: dict[str, tuple[list[str], list[int]]] = {
    "import mindspore_replay": ([], [1, 1, 1]),
    "nn.Cell()": (["made"], [1, 2, 3]),
    "Parameter(1.0, name='x'), os.environ.update(X=''), ms.set_seed(3)": (
        ["environment", "seeds", "random", "made"],
        [1, 1, 1],
    ),
}


def test_what_changes(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)  # MindSpore wants the source of what it compiles
    for line, done in zip(LINES, run_each(tmp_path / "program.py", [[line] for line in LINES]), strict=True):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == [*LINES[line]], line
