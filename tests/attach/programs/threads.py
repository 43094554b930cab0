"""A program of any Python, without torch, with a process of its own: threads.py START_METHOD.

In both, the main thread is in ``loop`` and another one in ``beside``.
"""

import multiprocessing
import sys
import threading
import time


def beside():
    while True:
        time.sleep(0.01)


def loop():
    threading.Thread(target=beside, daemon=True).start()
    while True:
        time.sleep(0.01)


def main():
    context = multiprocessing.get_context(sys.argv[1])
    context.Process(target=loop, daemon=True).start()
    print("begun", flush=True)
    loop()


if __name__ == "__main__":
    main()
