"""A launcher of two ranks that print their steps as ranks do; the second holds 60 MiB and, with `dies`, ends by SIGSEGV at its step 12."""

import os
import signal
import subprocess
import sys
import time


def work(rank, dies):
    held = bytearray(b"x") * (60 << 20 if rank else 1 << 20)
    for step in range(1, 25 + 5 * rank):
        print(f"rank {rank}: step {step}", flush=True)
        if dies and rank and step == 12:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(0.1)
    del held


if len(sys.argv) > 2:
    work(int(sys.argv[2]), sys.argv[1] == "dies")
else:
    started = [
        subprocess.Popen([sys.executable, __file__, sys.argv[1], str(rank)], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
        for rank in (0, 1)
    ]
    sys.exit(max(child.wait() != 0 for child in started))
