"""A quadratic whose noise scale is known: loss 0.5 |theta - x|^2 with x normal, so one sample's
gradient is theta - x.
"""

import numpy as np

TRUE = 91.0  # CONVERGENCE.md's


def norms(
    seed: int,
    updates: int,
    part: int = 8,
    parts: int = 2,
    seen: int = 2,
    size: int = 20,
    scale: float = TRUE,
) -> tuple[np.ndarray, np.ndarray]:
    """|g_b|^2, mean over ``seen`` parts, and |g_B|^2 of each update: float64 [updates]. tr(Sigma)
    is 1, |G|^2 is 1 / scale.
    """
    noise = np.random.default_rng(seed).standard_normal((updates, parts, size)) / np.sqrt(
        size * part
    )
    gradients = 1 / np.sqrt(size * scale) + noise
    return (gradients[:, :seen] ** 2).sum(2).mean(1), (gradients.mean(1) ** 2).sum(1)
