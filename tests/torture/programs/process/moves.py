"""It changes its folder in mid-training, makes workers there, and leaves files in both."""

import os

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
os.makedirs("a/b")
for number, x in enumerate(loader(num_workers=1)):
    step(net, optimizer, x)
    os.chdir("a" if number == 1 else "b" if number == 3 else ".")
    with open("here", "a") as file:
        file.write(f"{number}\n")
for x in loader(num_workers=1):
    step(net, optimizer, x)
print(os.path.basename(os.getcwd()))
digest(net)
