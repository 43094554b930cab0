"""Loaders to compare, stores to pack a dataset into, and probes that each measure one ceiling.

Import it as ``feedline.pipelines``.
"""

if __name__ != "feedline.pipelines":
    raise ImportError(
        f"import feedline.pipelines, not {__name__}: a second copy would not share its classes "
        f"with the first"
    )
