"""Other programs are started: plain Python that trains, a shell, one with a preexec_fn, one by
posix_spawn, one by system.
"""

import os
import subprocess
import sys

from tiny import digest, train

if len(sys.argv) > 1:
    digest(train())
    sys.exit(3)
net = train()
print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True))
print(
    subprocess.run(
        ["sh", "-c", r"env | grep -v '^FEEDLINE_RUN=\|^PYTHONPATH=' | grep -ci feedline"],
        capture_output=True,
        text=True,
    )
)
print(subprocess.run(["true"], preexec_fn=lambda: os.nice(1), close_fds=False))
print(
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], os.environ), 0)[1],
    os.system("exit 5"),
)
print(os.popen("echo six").read())
digest(net)
