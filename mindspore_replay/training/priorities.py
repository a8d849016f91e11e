"""Priorities of sequences."""

from mindspore import Tensor, ops


def sequence_priorities(errors: Tensor, mask: Tensor, eta: float = 0.9) -> Tensor:
    r"""Compute priorities of sequences from the TD errors of their steps.

    .. math:: p = \eta \max_t |\delta_t| + (1 - \eta) \operatorname{mean}_t |\delta_t|

    over the steps selected by the mask. It compiles into the graph that calls it.

    Axes: ``B`` sequences, ``T`` steps.

    Args:
        errors (Tensor): TD errors :math:`\delta_t`. Shape ``[B, T]``, float.
        mask (Tensor): Steps to count: those after the burn-in where the sample's mask is True. Shape ``[B, T]``, bool.
        eta (float): Weight of the largest error, in [0, 1]. Default: ``0.9``.

    Returns:
        Tensor: Priorities for `SequenceReplayBuffer.update_priorities`, 0 for a sequence without steps. Shape ``[B]``,
        dtype of `errors`.

    Raises:
        ValueError: If `eta` is outside [0, 1] or the shapes differ.

    Reference:
        Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning",
        https://openreview.net/forum?id=r1lyTjAqYX, section 2.3.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_replay import sequence_priorities
        >>> errors, mask = Tensor([[1.0, -3.0, 8.0]], ms.float32), Tensor([[True, True, False]])
        >>> print(sequence_priorities(errors, mask, eta=0.5))
        [2.5]
    """
    if not 0 <= eta <= 1:
        raise ValueError("For 'sequence_priorities', 'eta' must be in [0, 1].")
    if errors.shape != mask.shape or len(errors.shape) != 2:
        raise ValueError("For 'sequence_priorities', 'errors' and 'mask' must both have shape [B, T].")
    counted = ops.cast(mask, errors.dtype)
    sizes = ops.abs(errors) * counted
    mean = ops.reduce_sum(sizes, 1) / ops.maximum(ops.reduce_sum(counted, 1), ops.ones_like(counted[:, 0]))
    return eta * ops.reduce_max(sizes, 1) + (1 - eta) * mean
