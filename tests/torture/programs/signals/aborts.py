"""The program calls abort() with text waiting in its buffers."""

import os

from tiny import digest, train

digest(train())
print("never seen", end="")
os.abort()
