"""Why stacks are not sampled with signals: does faulthandler's handler survive?

    python benchmarks/stack_signals.py [SECONDS] [HZ]

A timer on the main thread (timer_create, SIGEV_THREAD_ID) and faulthandler.register, while C code
calls Python functions. Prints the samples that were taken, or the signal that ended the program.
"""

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

HEADER = b"Stack (most recent call first)"


class _SigEvent(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_byte * 44),
    ]


def arm(hz, output):
    number = signal.SIGRTMIN + 7
    faulthandler.register(number, file=output, all_threads=False)
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    event = _SigEvent(None, number, 4, threading.get_native_id())
    assert not libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer))
    spec = (ctypes.c_long * 4)(0, int(1e9 / hz), 0, int(1e9 / hz))
    assert not libc.timer_settime(timer, 0, spec, None)


def program(seconds, hz):
    arm(hz, sys.stdout)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sorted(range(30), key=lambda number: -number)
    os._exit(0)


def main(seconds=20.0, hz=5000.0):
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, __file__, "--program", str(seconds), str(hz)]
        begin = time.monotonic()
        code = subprocess.run(command, stdout=output, check=False).returncode
        took = time.monotonic() - begin
        output.seek(0)
        samples = output.read().count(HEADER)
    end = f"ended by {signal.Signals(-code).name}" if code < 0 else "survived"
    print(f"Python {sys.version.split()[0]}: {samples:,} samples in {took:.1f} s, {end}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(float(sys.argv[2]), float(sys.argv[3]))
    else:
        main(*map(float, sys.argv[1:]))
