"""Three ways to meet a memory limit: `--workers N` that each hold a cache, `--leak MIB` kept of every step, `--batch MIB` at once."""

import argparse
import os
import socket
import time

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--leak", type=int, default=0)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=40)
options = parser.parse_args()
MIB = 1 << 20


def work(asked: socket.socket) -> None:
    """Holds more each time that it is asked, until its cache is full: so what is held at a step does not depend on the machine's speed."""
    cache: list[bytearray] = []
    while asked.recv(1):
        if len(cache) < 8:
            cache.append(bytearray(b"x") * (6 * MIB))
        asked.sendall(b"x")


def answers(worker: socket.socket) -> bool:
    try:
        worker.sendall(b"x")
        return worker.recv(1) == b"x"
    except ConnectionError:
        return False


kept: list[bytearray] = []
workers: dict[int, socket.socket] = {}
time.sleep(2)  # as a program that loads something: what dies sooner leaves too little to tell why
for _ in range(options.workers):
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        for each in (ours, *workers.values()):
            each.close()
        work(theirs)
        os._exit(0)
    theirs.close()
    workers[pid] = ours
for step in range(1, options.max_steps + 1):
    batch = bytearray(b"x") * (options.batch * MIB)
    if options.leak:
        kept.append(bytearray(b"x") * (options.leak * MIB))
    time.sleep(0.12)
    for pid, worker in workers.items() if step % 3 == 0 else ():
        if not answers(worker):
            raise RuntimeError(f"a worker (pid {pid}) is killed by signal: Killed.")
    print("step", step, flush=True)
for pid in workers:
    os.kill(pid, 9)
print("training finished", flush=True)
