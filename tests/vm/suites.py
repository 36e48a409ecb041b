"""What is run where cgroup version 2 holds the controllers: the tests that a real group takes part in, by file and words of their names."""

import shlex
import sys

SUITES = {
    "groups": "tests/matrix/test_cgroup_v2.py",
    "attempts": """tests/matrix/test_runner_attempt.py tests/matrix/test_runner_deaths.py tests/matrix/test_evidence_kernel.py
        -k 'oom or its_group or in_a_group or worker_killed_by or watchdog_ends or daemonised or number_of_processes or
            limit_that_cannot or killing_the or nothing_is_left or worker_that_memory or five_hundred or out_of_memory'""",
    # without test_watch's fast leak and test_evidence_memory's large step: pages are dear to touch there and the recorder looks seldom,
    # so that a step is a slope and a leak is over before it is told; test_cgroup_v2 has a slow one
    "probes": """tests/matrix/test_runner_probes.py tests/matrix/test_runner_sampler.py tests/matrix/test_evidence_memory.py
        -k 'oom_kill or limit_of_threads or slower_clock or group or file_cache or real_death'""",
    "machine": "tests/matrix/test_doctor_machine.py -k 'group or kill_in or page_cache'",
    "watch": "tests/matrix/test_watch.py -k 'outlive or killed_recorder or launcher_moves or without_rights'",
    "resume": "tests/matrix/test_resume.py -k 'had_not_started or its_guardian or two_signals'",
    "diagnoses": """tests/matrix/test_explain.py tests/matrix/test_diagnosis_memory.py -k 'real_kill or real_program'""",
}


def command(suite: str) -> str:
    """The shell command of one of them; -rs names what was skipped."""
    return f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider -p no:xdist -rs {' '.join(SUITES[suite].split())}"
