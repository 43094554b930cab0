"""Non-daemon threads continue to train after the main thread has ended; daemon threads are cut off."""

import threading
import time

from tiny import digest, network, train


def work():
    threading.main_thread().join()
    net = train(network())
    time.sleep(0.1)
    digest(net)


def endless():
    while True:
        time.sleep(0.01)


threading.Thread(target=endless, daemon=True).start()
threading.Thread(target=work).start()
digest(train())
