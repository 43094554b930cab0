"""A program whose threads live for 0.15 s each, one after another with pauses of 0.05 s."""

import threading
import time


def passes():
    time.sleep(0.15)


print("begun", flush=True)
while True:
    thread = threading.Thread(target=passes)
    thread.start()
    thread.join()
    time.sleep(0.05)
