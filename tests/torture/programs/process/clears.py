"""It empties os.environ, sys.path and the caches of imports."""

import importlib
import os
import sys

from tiny import digest, loader, network, train

net = train(network())
os.environ.clear()
sys.path.clear()
sys.path_importer_cache.clear()
importlib.invalidate_caches()
train(net, loader(num_workers=1))
print(dict(os.environ), sys.path)
digest(net)
