"""Reads run folders and explains them: steps, stages, findings, reports. Never imports torch.

Import it as ``feedline.analysis``.
"""

if __name__ != "feedline.analysis":
    raise ImportError(
        f"import feedline.analysis, not {__name__}: a second copy would not share its classes "
        f"with the first"
    )
