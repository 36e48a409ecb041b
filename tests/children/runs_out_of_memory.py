"""Three ways to meet a memory limit: `--workers N` that each hold a cache, `--leak MIB` kept of every step, `--batch MIB` at once."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--leak", type=int, default=0)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=40)
options = parser.parse_args()
MIB = 1 << 20
kept, children = [], []
time.sleep(2)  # as a program that loads something: what dies sooner leaves too little to tell why
for _ in range(options.workers):
    child = os.fork()
    if child == 0:
        cache = []
        for _ in range(8):
            cache.append(bytearray(b"x") * (6 * MIB))
            time.sleep(0.4)
        time.sleep(30)
        os._exit(0)
    children.append(child)
for step in range(1, options.max_steps + 1):
    batch = bytearray(b"x") * (options.batch * MIB)
    if options.leak:
        kept.append(bytearray(b"x") * (options.leak * MIB))
    time.sleep(0.12)
    for child in children:
        if os.waitpid(child, os.WNOHANG)[0]:
            raise RuntimeError(f"a worker (pid {child}) is killed by signal: Killed.")
    print("step", step, flush=True)
for child in children:
    os.kill(child, 9)
print("training finished", flush=True)
