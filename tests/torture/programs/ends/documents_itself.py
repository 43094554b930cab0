"""doctest of __main__, whose examples train.

>>> train().training
True
>>> 1 + 1
3
"""

import doctest
import sys

from tiny import digest, train

if __name__ == "__main__":
    failed = doctest.testmod().failed
    digest(train())
    sys.exit(failed)
