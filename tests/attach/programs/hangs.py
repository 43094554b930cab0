"""Trainings that hang: hangs.py KIND. Each prints ``begun`` when it is about to."""

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info

KIND = sys.argv[1]
LOCK = threading.Lock()
QUEUE = multiprocessing.Queue(maxsize=1)


class Data(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 40:
            print("begun", flush=True)
            self.hang()
        return torch.zeros(4)

    def hang(self):
        if KIND == "lock":
            with LOCK:  # here
                return
        elif KIND == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)  # here
        elif KIND == "full queue":
            QUEUE.put(1)
            QUEUE.put(2)  # here
        elif KIND == "full pipe":
            words = [sys.executable, "-S", "-c", "print('x' * 100_000)"]
            subprocess.Popen(words, stdout=subprocess.PIPE).wait()  # here


def train():
    LOCK.acquire()
    loader = DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    model = torch.nn.Linear(4, 1)
    for batch in loader:
        model(batch).sum().backward()


def train_with_dead():
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
    worker.start()
    print("begun", flush=True)
    QUEUE.get()  # here


def read_ahead(batches):
    batches.put(torch.zeros(4))
    raise SystemExit


def train_from_a_thread_that_ends():
    batches = queue.Queue()
    threading.Thread(target=read_ahead, args=(batches,), daemon=True).start()
    while True:
        batches.get()  # here
        print("begun", flush=True)


def batches():
    shards, position = [torch.zeros(4)] * 40, 0
    while True:
        found = None
        if position == len(shards):
            print("begun", flush=True)
        while found is None:
            for shard in shards[position : position + 1]:
                found = shard
            position += 1
        yield found


def train_on_what_runs_out():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches():
        model(batch).sum().backward()
        optimizer.step()


def train_ranks():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(30 if dist.get_rank() == 0 else 31):
        if KIND == "exception" and step == 10 and dist.get_rank() == 0:
            try:
                raise ValueError
            except ValueError:
                wait()
        loss = model(torch.zeros(2, 4)).sum()
        loss.backward()  # here
    wait()


def wait():
    print("begun", flush=True)
    time.sleep(1000)


if __name__ == "__main__":
    if KIND in ("ahead", "exception"):
        train_ranks()
    elif KIND == "dead":
        train_with_dead()
    elif KIND == "dead thread":
        train_from_a_thread_that_ends()
    elif KIND == "spinning":
        train_on_what_runs_out()
    else:
        train()
    assert get_worker_info() is None
