"""One gradient of several learners' batches."""

from __future__ import annotations

import torch
from torch import Tensor

from lamarckian.rl.algorithm import Peers


def average(peers: Peers, gradient: Tensor, numbers: Tensor, weight: int) -> tuple[Tensor, float]:
    """Replaces `gradient`, flat, by its mean over all learners, each weighed by its `weight`, such as how many samples it is of.

    Returns the same mean of `numbers`, a vector, and the sum of the weights; where that is 0, the means are 0.
    """
    if peers.size == 1:
        return numbers, weight
    flat = torch.cat([gradient, numbers, gradient.new_ones(1)]).mul_(weight)
    peers.add(flat)
    total = float(flat[-1])
    flat.div_(max(total, 1.0))
    gradient.copy_(flat[: len(gradient)])
    return flat[len(gradient) : -1], total
