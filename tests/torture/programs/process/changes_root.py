"""It changes its root folder and becomes another user, as containers do."""

import os

from tiny import digest, loader, network, train

net = train(network())
os.makedirs("root")
os.chroot("root")
os.chdir("/")
os.setgid(65534)
os.setuid(65534)
print(os.listdir("/"), os.getuid())
digest(train(net, loader()))
