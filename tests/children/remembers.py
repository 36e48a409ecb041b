"""Takes steps of 20 ms and uses memory in one of several ways: `remembers.py SHAPE STEPS`."""

import os
import sys
import time

MIB = 1 << 20


def touched(mib):
    return bytearray(b"x") * (mib * MIB)  # bytearray(n) would be zero pages that nobody has touched


shape, steps = sys.argv[1], int(sys.argv[2])
base = touched(40)
kept = []
for step in range(1, steps + 1):
    if shape == "grows":
        kept.append(touched(1))
    elif shape == "stairs" and step % 30 == 0:
        kept.append(touched(20))
    elif shape == "spike" and step == steps * 2 // 3:
        passing = touched(100)
        time.sleep(0.1)
        del passing
    elif shape == "settles" and step < steps // 3:
        kept.append(touched(2))
    elif shape == "cliff" and step == steps:
        kept.append(touched(400))
    elif shape == "forks" and step == 1:
        for _ in range(3):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
    print("step", step, flush=True)
    time.sleep(0.02)
