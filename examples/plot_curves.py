"""Draws the learning curves of several runs of dqn.py into one picture.

python examples/plot_curves.py runs/dqn_cartpole_seed* --out docs/images/dqn_cartpole.png
"""

import argparse
import json
from pathlib import Path

from dqn import plot

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders that dqn.py wrote")
    parser.add_argument("--out", type=Path, default=Path("learning_curves.png"))
    arguments = parser.parse_args()
    histories = {run.name: json.loads((run / "history.json").read_text()) for run in arguments.runs}
    plot(histories, arguments.out, next(iter(histories.values()))["config"])
