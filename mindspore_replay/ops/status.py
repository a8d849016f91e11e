"""A report on the backend that operators run on."""

from typing import NamedTuple

from . import native, statement_hook


class KernelStatus(NamedTuple):
    """The backend that ``backend="auto"`` chooses on the current device target.

    Attributes:
        backend (str): ``"native"`` or ``"composite"``.
        library (str): Path of the kernel library for the current device target; empty if there is none.
        reason (str): Why native kernels cannot run on the current device target; empty if they can.
        insert_statement (bool): Whether the bare statement ``buffer.insert(rows)`` compiles as it is written. If not,
            write ``buffer.add(rows)`` in compiled code.
        cuda (str): Why native kernels cannot run on a GPU, whatever the current device target; empty if the CUDA
            kernel library was built and loads.

    Examples:
        >>> from mindspore_replay import kernel_status
        >>> status = kernel_status()
        >>> print(status.backend, status.insert_statement)
        native True
    """

    backend: str
    library: str
    reason: str
    insert_statement: bool
    cuda: str = ""

    def __str__(self) -> str:
        kernels = self.library or "none"
        statement = "compiles as written" if self.insert_statement else "is not safe in a graph: write buffer.add(rows)"
        lines = [f"backend: {self.backend}", f"kernels: {kernels}", f"buffer.insert(rows): {statement}"]
        return "\n".join(lines + ([f"reason: {self.reason}"] if self.reason else []))


def kernel_status() -> KernelStatus:
    """Report which backend ``"auto"`` chooses on the current device target, and why.

    Returns:
        KernelStatus: The report; prints as a few lines.

    Examples:
        >>> from mindspore_replay import kernel_status
        >>> kernel_status().insert_statement
        True
    """
    reason = native.why_not()
    backend = "composite" if reason else "native"
    return KernelStatus(backend, native.library_path(), reason, statement_hook.installed(), native.why_not("GPU"))
