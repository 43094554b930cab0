"""The recorder: what runs inside the training, and the run folder that it writes to.

It has clocks, taps and samplers. Import it as ``feedline.profiler``; setup.cfg maps this folder
there, so that a ``profiler`` module of the user's own is never in the way.
"""

if __name__ != "feedline.profiler":
    raise ImportError(
        f"import feedline.profiler, not {__name__}: a second copy would not share its classes "
        f"with the first"
    )
