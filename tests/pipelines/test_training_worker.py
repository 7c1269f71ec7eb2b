"""Children of the forkserver: their result or their end in one line, their log, and that none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from robocoach.pipelines import training_worker
from robocoach.pipelines.training_worker import TrainingWorker

HERE = Path(__file__).parent


@pytest.fixture
def run(tmp_path):
    """Runs a function of worker_functions.py: run(name, deadline_s=…, …, **kwargs). The server imports nothing."""

    def call(
        name: str, *, worker: TrainingWorker | None = None, deadline_s=30.0, grace_s=10.0, progress=None, **kwargs
    ):
        environment = kwargs.pop("environment", None)
        return (worker or TrainingWorker(preload=())).run(
            f"worker_functions:{name}",
            kwargs,
            deadline_s=deadline_s,
            grace_s=grace_s,
            progress=progress,
            environment=environment,
            log=tmp_path / "attempt" / "log.txt",
        )

    return call


def gone(pid: int, within_s: float = 1.0) -> bool:
    """Whether the process ends in that time; one that only waits to be reaped has ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_result_comes_back_with_its_progress(run):
    seen: list[int] = []
    outcome = run("double", number=3, progress=seen.append)
    assert (outcome.status, outcome.reason) == ("finished", "")
    assert outcome.result["double"] == 6 and outcome.result["pid"] != os.getpid()
    assert seen == [0, 1, 2]
    assert outcome.startup_s > 0


def test_what_a_child_prints_goes_into_its_log(run, tmp_path, capfd):
    run("double", number=0)
    log = (tmp_path / "attempt" / "log.txt").read_text()
    assert "said on stdout" in log and "said on stderr" in log
    assert "said" not in "".join(capfd.readouterr())


def test_the_environment_is_the_childs_only(run, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert run("double", number=0, environment={"CUDA_VISIBLE_DEVICES": "3"}).result["device"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert run("double", number=0).result["device"] is None


def test_a_function_can_be_handed_over_itself(tmp_path):
    import worker_functions

    made = TrainingWorker(preload=()).run(
        worker_functions.double, {"number": 1}, deadline_s=30, log=tmp_path / "log.txt"
    )
    assert made.result["double"] == 2


def test_a_loss_that_is_not_finite_is_told_apart(run):
    outcome = run("diverge")
    assert (outcome.status, outcome.reason) == ("nan", "loss was not finite at step 3")


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("error", "crashed", "ValueError: no such layer"),
        ("user error", "crashed", "the data is of another task; use its own"),
        ("memory", "out of memory", "MemoryError"),
        ("gpu memory", "out of memory", "RuntimeError: CUDA error: out of memory while allocating 3 GB"),
        ("no dict", "crashed", "TypeError: worker_functions:fail returned a list, expected a dict"),
        ("sys.exit", "crashed", "SystemExit: enough"),
        ("exit", "crashed", "left with exit code 3 without a result"),
        ("SIGSEGV", "crashed", "killed by SIGSEGV"),
        ("SIGKILL", "crashed", "killed by SIGKILL"),
        ("SIGTERM", "interrupted", "ended by SIGTERM from outside"),
    ],
)
def test_each_end_has_its_status_and_one_line(run, kind, status, reason):
    outcome = run("fail", kind=kind)
    assert (outcome.status, outcome.reason, outcome.result) == (status, reason, {})


def test_a_result_that_cannot_be_sent_is_a_crash(run):
    outcome = run("fail", kind="not to be sent")
    assert outcome.status == "crashed" and "pickle" in outcome.reason


def test_a_function_that_is_not_there_is_a_crash(run):
    assert run("nothing").reason.startswith("AttributeError")


def test_the_tracebacks_are_in_the_log(run, tmp_path):
    run("fail", kind="error")
    run("fail", kind="SIGSEGV")
    log = (tmp_path / "attempt" / "log.txt").read_text()
    assert "Traceback" in log and "Fatal Python error: Segmentation fault" in log


def test_a_kill_by_the_kernel_for_memory_is_named(run, monkeypatch):
    counts = iter([4, 5])
    monkeypatch.setattr(training_worker, "_oom_kills", lambda: next(counts))
    outcome = run("fail", kind="SIGKILL")
    assert (outcome.status, outcome.reason) == ("out of memory", "killed by the kernel: out of memory")


def test_at_its_deadline_a_child_is_asked_to_save(run, tmp_path):
    outcome = run("polite", file=str(tmp_path / "state"), deadline_s=0.3)
    assert outcome.status == "timeout"
    assert outcome.reason == "ran past its deadline of 0.3 s, ended when asked to save"
    assert (tmp_path / "state").read_text() == "saved"


def test_a_child_that_does_not_stop_is_killed_with_what_it_started(run, tmp_path):
    outcome = run("stubborn", file=str(tmp_path / "pids"), deadline_s=0.3, grace_s=0.2)
    assert outcome.status == "timeout" and "killed 0.2 s after" in outcome.reason
    assert outcome.seconds < 3
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_another_thread_can_end_it(run, tmp_path):
    worker = TrainingWorker(preload=())
    outcome = run(
        "polite",
        worker=worker,
        file=str(tmp_path / "state"),
        progress=lambda pid: threading.Thread(target=worker.interrupt).start(),
    )
    assert outcome.status == "interrupted" and (tmp_path / "state").read_text() == "saved"


def test_children_run_at_the_same_time(tmp_path):
    worker, done = TrainingWorker(preload=()), []

    def one(index: int) -> None:
        kwargs = {"file": str(tmp_path / f"state{index}")}
        log = tmp_path / f"log{index}.txt"
        done.append(worker.run("worker_functions:polite", kwargs, deadline_s=0.6, log=log).status)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(3)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == ["timeout"] * 3
    assert time.monotonic() - began < 1.7


def test_a_progress_that_raises_leaves_no_child(run, tmp_path):
    seen = []

    def broken(pid: int) -> None:
        seen.append(pid)
        raise RuntimeError("screen gone")

    with pytest.raises(RuntimeError, match="screen gone"):
        run("stubborn", file=str(tmp_path / "pids"), progress=broken)
    assert gone(seen[0])


SCRIPT = """
import sys
from pathlib import Path
from robocoach.pipelines.training_worker import TrainingWorker

if __name__ == "__main__":
    folder, function = Path(sys.argv[1]), sys.argv[2]
    try:
        TrainingWorker(preload=()).run(
            f"worker_functions:{function}",
            {"file": str(folder / "file")},
            deadline_s=60,
            progress=lambda pid: print(pid, flush=True),
            log=folder / "log.txt",
        )
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.fixture
def main_process(tmp_path):
    """Starts a main process with one child: main_process(function) → (process, the child's id)."""
    started = []

    def start(function: str):
        script = tmp_path / "main_process.py"
        script.write_text(SCRIPT)
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), function],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_killed_main_process_takes_its_child_and_its_server_along(main_process):
    process, child = main_process("stubborn")
    server = int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1])
    process.send_signal(signal.SIGKILL)
    assert gone(child), "the training outlived the main process by a second"
    assert gone(server)


def test_a_killed_server_takes_the_child_along_and_is_replaced(run, tmp_path):
    def kill_server(child: int) -> None:
        os.kill(int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)

    outcome = run("stubborn", file=str(tmp_path / "pids"), progress=kill_server)
    assert outcome.status == "crashed" and "the next training starts another" in outcome.reason
    assert gone(int((tmp_path / "pids").read_text().split()[0]))
    assert run("double", number=1).status == "finished"


def test_ctrl_c_lets_the_child_save_and_waits_for_it(main_process, tmp_path):
    process, child = main_process("polite")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the whole group
    assert process.stdout.read().strip() == "interrupted"
    assert (tmp_path / "file").read_text() == "saved"
    assert gone(child)
