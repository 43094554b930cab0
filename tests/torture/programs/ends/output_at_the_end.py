"""Text without an end of line waits in three buffers at the end: print, sys.stdout.buffer and a
file that is left open.
"""

import sys

from tiny import digest, train

digest(train())
file = open("left_open", "w")
file.write("in a file")
print("in print", end="")
sys.stdout.flush()
sys.stdout.buffer.write(b" in the buffer \xff")
