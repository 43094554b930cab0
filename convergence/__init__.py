"""What a larger batch costs, which fix helps, and how to verify it.

Import it as ``feedline.convergence``.
"""

if __name__ != "feedline.convergence":
    raise ImportError(
        f"import feedline.convergence, not {__name__}: a second copy would not share its classes "
        f"with the first"
    )
