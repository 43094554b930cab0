"""Two processes train; in the middle of it one kills their parent, and both train on."""

import os
import signal
import time

import counted
import torch.multiprocessing as mp


def kill(step):
    time.sleep(0.1)
    if step == 3:
        os.kill(os.getppid(), signal.SIGKILL)


def wait(step):
    time.sleep(0.1)


if __name__ == "__main__":
    context = mp.get_context("fork")
    for name, during in (("a", kill), ("b", wait)):
        context.Process(
            target=counted.train, args=(name,), kwargs={"steps": 10, "during": during}
        ).start()
    signal.pause()
