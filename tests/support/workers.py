"""Functions that run in threads side by side."""

import threading
from collections.abc import Callable


def run(*workers: Callable[[], None]) -> None:
    """Runs all to the end; the first error of any is raised here."""
    errors: list[BaseException] = []

    def guarded(worker: Callable[[], None]) -> None:
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
