"""A progress bar over bytes."""

import contextlib
from collections.abc import Callable, Iterator

from ..store.optional import install_command


@contextlib.contextmanager
def progress_bar(function: str, total: int, shown: bool) -> Iterator[Callable[[int], object]]:
    """Show a progress bar in the block, which gets a function that takes the bytes of each step."""
    if not shown:
        yield lambda done: None
        return
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(f"'{function}' with progress=True needs tqdm: {install_command('examples')}") from error
    with tqdm(total=total, unit="B", unit_scale=True, desc=function) as bar:
        yield bar.update
