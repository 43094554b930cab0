"""A double fork makes a daemon that trains in a session of its own after the first process has
ended.
"""

import os
import random
import time

from tiny import digest, train

reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(reader)
        os.chdir("/")
        random.seed(1)  # Python has seeded it
        digest(train())
        os.write(writer, b"trained")
        os._exit(0)
    os._exit(0)
os.wait()
os.close(writer)
print(os.read(reader, 100), os.read(reader, 100))
digest(train())
time.sleep(0)
