"""SIGPROF and SIGVTALRM timers of the user's own sampling profiler, with siginterrupt and with
workers.
"""

import signal

from tiny import digest, loader, network, sgd, step

frames = []
for number, timer in (
    (signal.SIGPROF, signal.ITIMER_PROF),
    (signal.SIGVTALRM, signal.ITIMER_VIRTUAL),
):
    signal.signal(number, lambda number, frame: frames.append(frame.f_lineno))
    signal.siginterrupt(number, False)
    signal.setitimer(timer, 0.002, 0.002)
net = network()
optimizer = sgd(net)
for _ in range(10):
    for x in loader():
        step(net, optimizer, x)
print(len(frames) > 0, signal.getitimer(signal.ITIMER_PROF)[1])
signal.setitimer(signal.ITIMER_PROF, 0)
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
digest(net)
