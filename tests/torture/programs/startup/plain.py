"""A training with two workers, started in odd ways and places."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from tiny import digest, loader, network, train  # noqa: E402

if __name__ == "__main__":
    print(sys.argv[:3], len(sys.argv), os.path.basename(__file__), __name__, __debug__, sys.flags.optimize)
    digest(train(network(), loader(num_workers=2)))
