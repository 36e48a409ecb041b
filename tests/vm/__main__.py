"""`python -m tests.vm` runs what needs cgroup version 2 in a guest that has it; `python -m tests.vm COMMAND ...` any command."""

import shlex
import sys

from tests.vm import machine, suites

TIMEOUT_S = 3600

if __name__ == "__main__":
    if why := machine.why_not():
        sys.exit(why)
    commands = [shlex.join(sys.argv[1:])] if sys.argv[1:] else [suites.command(name) for name in suites.SUITES]
    ran = machine.run("; ".join(f"{each} || failed=1" for each in commands) + "; exit ${failed:-0}", timeout_s=TIMEOUT_S)
    print(ran.output, end="")
    sys.exit(ran.rc if ran.rc is not None else f"the guest did not come to its end; its console:\n{ran.console[-4000:]}")
