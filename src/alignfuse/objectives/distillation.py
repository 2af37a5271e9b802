"""Momentum distillation: soft targets of a teacher blended with the hard ones (ALBEF section 3.3, eq. 6-7).

Shapes: N rows, K classes.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import log_softmax, softmax


def ramp(alpha: float, epoch: float, epochs: float) -> float:
    """The distillation weight: linear from 0 to `alpha` over the first `epochs` epochs, then constant."""
    return alpha if epochs <= 0 else alpha * min(1.0, epoch / epochs)


def blend(hard: Float[Tensor, "N K"], teacher_logits: Float[Tensor, "N K"], alpha: float) -> Float[Tensor, "N K"]:
    """(1 - alpha) * hard targets + alpha * softmax of the teacher; no gradient reaches the teacher."""
    return (1.0 - alpha) * hard + alpha * softmax(teacher_logits.detach().float(), dim=1)


def soft_cross_entropy(logits: Float[Tensor, "N K"], teacher_logits: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
    """Sum over rows of -sum_k softmax(teacher)_k log softmax(student)_k, in float32."""
    targets = softmax(teacher_logits.detach().float(), dim=1)
    return -(targets * log_softmax(logits.float(), dim=1)).sum()
