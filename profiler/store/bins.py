"""Histograms of durations: logarithmic bins, four per octave."""

BINS = 256
SAMPLE_HISTOGRAM = 0  # of a segment's two; the second is not in use


def bin_of(wall_ns: int) -> int:
    """Histogram bin of a duration: four per octave, so an edge is at most 25 % away."""
    octave = wall_ns.bit_length()
    return (octave << 2 | wall_ns >> octave - 3 & 3) if octave > 2 else wall_ns


def bin_edge_ns(index: int) -> int:
    """Lower edge of a bin: the smallest duration with ``bin_of(...) == index``."""
    octave = index >> 2
    return (4 | index & 3) << octave - 3 if octave > 2 else index
