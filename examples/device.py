"""The option ``--device`` of the examples that train."""

import argparse

import mindspore as ms


def add_device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["CPU", "GPU", "Ascend"], default="CPU", help="what to train on")


def use_device(device: str) -> None:
    """Select the kind of device that MindSpore computes on; exit if there is none."""
    try:
        ms.set_device(device)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SystemExit(f"--device {device}: {reason}") from None
