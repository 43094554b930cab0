"""sys.setprofile counts calls of its own functions, Python's and C's."""

import sys

from tiny import digest, loader, network, sgd, step

calls = []


def profile(frame, event, arg):
    if frame.f_code.co_filename.endswith("setprofile.py"):
        calls.append(
            (
                event,
                getattr(arg, "__name__", None) if event.startswith("c_") else frame.f_code.co_name,
            )
        )


def one(x):
    return step(net, optimizer, x)


net = network()
optimizer = sgd(net)
sys.setprofile(profile)
for x in loader():
    one(x)
print(sys.getprofile() is profile)
sys.setprofile(None)
print(len(calls), sorted(set(map(str, calls))))
digest(net)
