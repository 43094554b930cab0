"""One of two ranks started by torchrun raises; the launcher ends the other one."""

import os
import sys
import time

import torch.distributed as dist
from tiny import train

dist.init_process_group("gloo")
train()
if os.environ["RANK"] == "1":
    sys.exit(5)
time.sleep(60)
