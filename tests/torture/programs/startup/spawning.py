"""A training whose workers are spawned, started in odd ways and places."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from tiny import digest, loader, network, train  # noqa: E402

if __name__ == "__main__":
    print(sys.argv, os.path.basename(__file__), __spec__ and __spec__.name)
    digest(train(network(), loader(num_workers=1, multiprocessing_context="spawn")))
