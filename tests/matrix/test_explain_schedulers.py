"""What schedulers say of a job's end, in the forms that they document, and what that does not prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.explaining import explained, grades, piece, refused
from tests.matrix.test_explain import KERNEL, KILLED, written

TABLE = """\
JobID           JobName      State ExitCode     MaxRSS     ReqMem    Elapsed  Timelimit
------------ ---------- ---------- -------- ---------- ---------- ---------- ----------
{rows}
"""
OUT_OF_MEMORY = TABLE.format(
    rows="4711              train OUT_OF_ME+    0:125                   32G   01:12:01   12:00:00\n"
    "4711.batch        batch OUT_OF_ME+    0:125  33445566K        32G   01:12:01\n"
    "4711.extern      extern  COMPLETED      0:0       912K        32G   01:12:01"
)
TIMEOUT = "JobID|State|ExitCode|Elapsed|Timelimit\n99|TIMEOUT|0:0|12:00:17|12:00:00\n99.batch|CANCELLED|0:15|12:00:18|\n"
CONTAINER = "5954f621c17f13706c25a215db06fe2bf7b9a9a6c732a909eb0db39d62346724"


def pod(ending: str, code: int, *, state: str = "state", **status: Any) -> str:
    ended = {"terminated": {"exitCode": code, "reason": ending, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z"}}
    container = {"name": "train", "containerID": f"containerd://{CONTAINER}", state: ended}
    meta = {"name": "train", "uid": "c480d1ba-bec2-11e5-ad45-062d2421a4bd"}
    limits = {"containers": [{"name": "train", "resources": {"limits": {"memory": "8Gi"}}}]}
    return json.dumps({"kind": "Pod", "metadata": meta, "spec": limits, "status": {"containerStatuses": [container], **status}})


# ------------------------------------------------------------------ numbers of schedulers
@pytest.mark.parametrize(
    ("words", "ended"),
    [
        ("271", "SIGTERM"),  # PBS: 256 + 15
        ("0:9", "SIGKILL"),
        ("ExitCode 0:11", "SIGSEGV"),
        ("1:0", "exit status 1"),
        ("134", "SIGABRT"),
        ("kill", "SIGKILL"),
    ],
)
def test_every_way_to_write_a_status_is_understood(words: str, ended: str) -> None:
    assert explained("--status", words)["ended"]["by"] == ended


def test_slurms_number_for_out_of_memory_is_no_signal() -> None:
    assert explained("--status", "0:125")["ended"]["by"] == "exit status 0"


def test_the_word_oomkilled_needs_the_exit_status_to_say_that_it_ended_the_job() -> None:
    alone, together = explained("--status", "OOMKilled"), explained("--status", "OOMKilled", "--status", "137")
    assert alone["ended"] is None
    assert alone["ranking"] == []
    assert together["sigkill"]["grade"] == "kernel, by its counter"


# ------------------------------------------------------------------ Slurm
def test_a_table_that_says_out_of_memory_is_a_counter_and_names_no_process(tmp_path: Path) -> None:
    table = written(tmp_path, "table", OUT_OF_MEMORY)
    found = explained(table)
    job = piece(found, "JobID 4711, State OUT_OF_ME+")
    assert job["where"] == f"{table}:3"
    assert job["grade"] == "kernel, by its counter"
    assert "which process" in job["not_proves"]
    assert "seven bits" in piece(found, "step 4711.batch: ExitCode")["proves"]
    assert "31.9 GiB" in piece(found, "MaxRSS 33445566K")["proves"]
    assert found["sigkill"]["grade"] == "kernel, by its counter"
    assert found["ranking"][0]["cause"].startswith("memory")
    assert grades(found) == {"suspected"}


def test_slurms_kernel_line_is_linked_by_the_job_in_its_group(tmp_path: Path) -> None:
    table, ours = written(tmp_path, "table", OUT_OF_MEMORY), KERNEL.format(pid=31337, group="slurm/uid_1000/job_4711/step_batch/task_0")
    found = explained(table, written(tmp_path, "dmesg", ours))
    assert "job_4711" in piece(found, "Killed process 31337")["proves"]
    assert found["sigkill"]["grade"] == "kernel, proven"
    other = explained(table, written(tmp_path, "other", ours.replace("job_4711", "job_4712")))
    assert piece(other, "Killed process 31337")["grade"] == "unknown"
    assert other["sigkill"]["grade"] == "kernel, by its counter"


def test_a_time_limit_is_the_schedulers_doing_and_no_memory(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "table", TIMEOUT))
    assert (found["ended"]["by"], found["ranking"][0]["cause"]) == ("SIGTERM", "watchdog_or_time_limit")
    assert "a job that hangs reaches its limit too" in piece(found, "JobID 99")["not_proves"]
    assert not any(entry["cause"].startswith("memory") and entry["supports"] for entry in found["ranking"])


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("TIMEOUT", "watchdog_or_time_limit"),
        ("PREEMPTED", "external_signal"),
        ("NODE_FAIL", "external_signal"),
        ("CANCELLED by 1000", "external_signal"),
    ],
)
def test_a_state_by_its_name_is_enough(state: str, cause: str) -> None:
    found = explained("--slurm", state)
    assert found["ranking"][0]["cause"] == cause
    assert "confirmed" not in grades(found)


def test_a_uid_is_named_as_such() -> None:
    assert "uid 1000" in explained("--slurm", "CANCELLED by 1000")["evidence"][0]["read"]


def test_slurmstepds_line_in_the_log_counts_for_the_step(tmp_path: Path) -> None:
    line = "slurmstepd: error: Detected 2 oom_kill events in StepId=4711.batch. Some of the step tasks have been OOM Killed.\n"
    found = explained(written(tmp_path, "log", KILLED + line))
    assert "2 kills for memory" in next(one["proves"] for one in found["evidence"] if one["grade"] == "kernel, by its counter")
    assert not any("allocation was refused" in one["proves"] for one in found["evidence"])
    assert found["sigkill"]["grade"] == "kernel, by its counter"


def test_the_end_by_a_limit_is_read_from_the_log_too(tmp_path: Path) -> None:
    line = "slurmstepd: error: *** STEP 4711.0 ON node1 CANCELLED AT 2026-01-05T10:11:12 DUE TO TIME LIMIT ***\n"
    assert explained(written(tmp_path, "log", f"step 5\n{line}"))["ranking"][0]["cause"] == "watchdog_or_time_limit"


def test_a_step_that_could_not_open_its_output_never_ran(tmp_path: Path) -> None:
    table = written(tmp_path, "t", "JobID|State|ExitCode\n7|FAILED|0:53\n7.batch|FAILED|0:53\n")
    assert "cannot be opened" in piece(explained(table), "step 7.batch")["proves"]


# ------------------------------------------------------------------ Kubernetes
def test_oomkilled_with_137_is_a_counter_of_the_container(tmp_path: Path) -> None:
    found = explained("--k8s", written(tmp_path, "pod.json", pod("OOMKilled", 137)))
    ended = piece(found, "OOMKilled, exit code 137")
    assert "memory limit 8Gi" in ended["read"]
    assert "counter is of its whole life" in ended["not_proves"]
    assert found["sigkill"]["grade"] == "kernel, by its counter"


def test_oomkilled_with_143_did_not_end_it_by_memory(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "pod.json", pod("OOMKilled", 143)))
    assert "main process ended with 143" in piece(found, "OOMKilled, exit code 143")["not_proves"]
    assert found["ended"]["by"] == "SIGTERM"
    assert not any(entry["cause"].startswith("memory") and entry["supports"] for entry in found["ranking"])


def test_error_with_137_leaves_memory_open(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "pod.json", pod("Error", 137)))
    assert "SystemOOM" in piece(found, "Error, exit code 137")["not_proves"]
    assert found["sigkill"]["grade"] == "unknown"
    assert grades(found) == {"suspected"}


def test_the_kernels_line_is_linked_by_the_container_and_by_the_pod(tmp_path: Path) -> None:
    file = written(tmp_path, "pod.json", pod("OOMKilled", 137, state="lastState"))
    for group in (
        f"kubepods/burstable/podX/{CONTAINER}",
        "kubepods.slice/kubepods-podc480d1ba_bec2_11e5_ad45_062d2421a4bd.slice/cri-1.scope",
    ):
        found = explained(file, written(tmp_path, "dmesg", KERNEL.format(pid=31337, group=group)))
        assert found["sigkill"]["grade"] == "kernel, proven"
        assert piece(found, "Killed process 31337")["grade"] == "kernel, by its counter"


def test_an_evicted_pod_was_ended_by_its_node(tmp_path: Path) -> None:
    evicted = pod("Error", 137, reason="Evicted", message="The node was low on resource: memory.")
    found = explained(written(tmp_path, "pod.json", evicted))
    assert found["ranking"][0]["cause"] == "external_signal"
    assert "low on resource" in piece(found, "Evicted")["read"]


def test_yaml_and_a_list_of_pods_read_alike(tmp_path: Path) -> None:
    listed = json.dumps({"kind": "List", "items": [json.loads(pod("OOMKilled", 137))]})
    yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: t}\nstatus:\n  containerStatuses:\n  - name: train\n    state:\n"
    yaml += "      terminated: {exitCode: 137, reason: OOMKilled}\n"
    for text in (listed, yaml):
        assert explained(written(tmp_path, "pods", text))["sigkill"]["grade"] == "kernel, by its counter"


DESCRIBED = """\
Name:             train-0
Namespace:        ml
Node:             node1/10.0.0.1
Containers:
  train:
    Container ID:  containerd://5954f621c17f13706c25a215db06fe2bf7b9a9a6c732a909eb0db39d62346724
    State:          Running
      Started:      Mon, 05 Jan 2026 11:00:00 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 05 Jan 2026 10:00:00 +0000
      Finished:     Mon, 05 Jan 2026 10:59:00 +0000
    Restart Count:  1
    Limits:
      cpu:     4
      memory:  8Gi
Events:
  Type     Reason     Age   From     Message
  ----     ------     ----  ----     -------
  Warning  Unhealthy  10m   kubelet  Liveness probe failed: command timed out
"""


def test_the_text_of_describe_gives_the_run_before_the_restart_and_the_events(tmp_path: Path) -> None:
    file = written(tmp_path, "described.txt", DESCRIBED)
    found = explained(file)
    ended = piece(found, "the run before the restart")
    assert "memory limit 8Gi" in ended["read"]
    assert ended["where"] == f"{file}:9"
    assert found["ended"]["by"] == "SIGKILL"
    assert "compare times" in piece(found, "event Unhealthy")["not_proves"]
    assert any("kubectl logs POD --previous" in one["command"] for one in found["collect"])


def test_containers_of_one_pod_are_told_apart_with_the_limit_of_each(tmp_path: Path) -> None:
    sidecar = """\
  log-shipper:
    State:          Terminated
      Reason:       Error
      Exit Code:    1
    Limits:
      memory:  64Mi
  train:
"""
    found = explained(written(tmp_path, "described.txt", DESCRIBED.replace("  train:\n", sidecar)))
    shipper, train = piece(found, "log-shipper")["read"], piece(found, "the run before the restart")["read"]
    assert shipper.startswith("container log-shipper: Error") and shipper.endswith("memory limit 64Mi")
    assert train.startswith("container train (the run before") and train.endswith("memory limit 8Gi")


def test_a_pod_that_runs_has_no_death_to_explain(tmp_path: Path) -> None:
    running = json.dumps({"kind": "Pod", "status": {"containerStatuses": [{"name": "t", "state": {"running": {"startedAt": "now"}}}]}})
    found = explained(written(tmp_path, "pod.json", running))
    assert found["ended"] is None
    assert found["ranking"] == []


@pytest.mark.parametrize(
    "pod", [{"status": {"containerStatuses": 5}}, {"status": {"containerStatuses": [{"state": "gone"}]}}, {"status": {}, "metadata": "x"}]
)
def test_a_pod_in_another_form_is_refused(pod: dict[str, object], tmp_path: Path) -> None:
    assert "its fields are not those that Kubernetes writes" in refused(written(tmp_path, "pod.json", json.dumps({"kind": "Pod"} | pod)))


@pytest.mark.parametrize("code", ["²137", "9" * 5000, "-1"])
def test_an_exit_code_that_is_none_is_not_read_as_one(code: str, tmp_path: Path) -> None:
    described = f"    State:          Terminated\n      Reason:       Error\n      Exit Code:    {code}\n"
    assert explained(written(tmp_path, "described", described))["ended"] is None


def test_a_document_without_an_end_is_no_pod(tmp_path: Path) -> None:
    assert "is known here" in refused(written(tmp_path, "pod.json", '{"containerStatuses":' + "[" * 100_000))


def test_a_job_that_still_runs_is_told_as_such(tmp_path: Path) -> None:
    rows = "JobID|State|ExitCode|MaxRSS\n12|RUNNING|0:0|\n12.0|RUNNING|0:0|100K\n"
    found = explained(written(tmp_path, "sacct.txt", rows))
    assert [one["proves"] for one in found["evidence"]] == [
        "the job still ran when Slurm was asked",
        "one task held 0.1 MiB at one of Slurm's looks",
    ]
    assert found["ranking"] == []


def test_a_step_that_slurm_itself_ended_for_memory_is_not_called_cancelled(tmp_path: Path) -> None:
    words = (
        "step 64\nslurmstepd-vm: error: StepId=1.batch exceeded memory limit (340656128 > 314572800), being killed\n"
        "slurmstepd-vm: error: Exceeded job memory limit\nslurmstepd-vm: error: *** JOB 1 ON vm CANCELLED AT 2026-01-01T00:00:00 ***\n"
    )
    found = explained(written(tmp_path, "job.out", words))
    assert found["ended"]["by"] == "SIGKILL"
    assert {entry["cause"].partition("_")[0] for entry in found["ranking"][:4]} == {"memory"}
    assert "324.9 MiB held, 300.0 MiB asked for" in piece(found, "exceeded memory limit")["proves"]


def test_what_is_neither_a_state_of_slurm_nor_a_file_is_refused_with_the_states() -> None:
    said = refused("--slurm", "OUTOFMEMORY")
    assert "--slurm OUTOFMEMORY: neither a file nor a state that is known: OUT_OF_MEMORY, TIMEOUT" in said
