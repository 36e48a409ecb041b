"""Hangs in a known function after it said that it is there."""

import time


def wait_for_ever() -> None:
    print("step 1", flush=True)
    time.sleep(60)


wait_for_ever()
