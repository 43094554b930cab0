"""Programs by others, unmodified: does feedline count as they do, and is its verdict true."""
