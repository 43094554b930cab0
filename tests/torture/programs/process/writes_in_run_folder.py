"""It writes, reads and removes files of its own in the run folder while it is recorded."""

import os
import pathlib

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
folder = pathlib.Path(os.environ["PLACE"], "run")
folder.mkdir(exist_ok=True)
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    (folder / f"mine{number}").write_text(str(number))
print(sorted(path.name for path in folder.glob("mine*")))
digest(net)
