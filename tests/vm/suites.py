"""What is run where cgroup version 2 holds the controllers: the tests that a real group takes part in, by file and words of their names."""

import shlex
import sys

SUITES = {
    "groups": "tests/matrix/test_cgroup_v2.py",
    "attempts": """tests/matrix/test_runner_attempt.py tests/matrix/test_runner_deaths.py tests/matrix/test_evidence_kernel.py
        -k 'oom or its_group or in_a_group or worker_killed_by or watchdog_ends or daemonised or number_of_processes or
            limit_that_cannot or killing_the or nothing_is_left or worker_that_memory or five_hundred or out_of_memory'""",
    "probes": """tests/matrix/test_runner_probes.py tests/matrix/test_runner_sampler.py tests/matrix/test_evidence_memory.py
        -k 'oom_kill or limit_of_threads or slower_clock or group or file_cache or large_step or real_death'""",
    "machine": "tests/matrix/test_doctor_machine.py -k 'group or kill_in or page_cache'",
    "commands": """tests/matrix/test_watch.py tests/matrix/test_resume.py tests/matrix/test_explain.py tests/matrix/test_diagnosis_memory.py
        -k 'leak_is_told or launcher_moves or without_rights or its_guardian or real_kill or real_program'""",
}


def command(suite: str) -> str:
    """The shell command of one of them; -rs names what was skipped."""
    return f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider -p no:xdist -rs {' '.join(SUITES[suite].split())}"
