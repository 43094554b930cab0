"""Its logging configuration receives every record of every library, warnings are captured, and
print is a logger.
"""

import logging
import sys
import warnings

from tiny import digest, loader, network, train

logging.basicConfig(
    level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(levelname)s %(message)s", force=True
)
logging.captureWarnings(True)
warnings.simplefilter("always")
net = train(network(), loader(num_workers=1))
warnings.warn("mine", UserWarning, stacklevel=1)
logging.getLogger("torch").warning("torch's")
digest(net)
