"""It removes the folder that it was started in, and continues to train there."""

import os
import shutil

from tiny import digest, loader, network, train

folder = os.getcwd()
net = network()
train(net)
shutil.rmtree(folder)
try:
    os.getcwd()
except FileNotFoundError as error:
    print(error.strerror)
train(net, loader(num_workers=1))
digest(net)
