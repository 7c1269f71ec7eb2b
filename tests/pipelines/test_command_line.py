"""The `pipeline` command as a user meets it: help in time, one line for each mistake, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from robocoach.configs.fields import fields
from robocoach.configs.models import Sim2RealConfig
from robocoach.pipelines import checks, cli, sim2real
from robocoach.pipelines.console import Console, clock
from robocoach.pipelines.options import SHORTCUTS

PIPELINE = [str(Path(sys.executable).with_name("pipeline"))]
HEAVY = ("torch", "lerobot", "genesis", "mujoco", "franky", "cv2", "av", "numpy", "pyrealsense2")


def run(*arguments, **more):
    return subprocess.run([*PIPELINE, *arguments], capture_output=True, text=True, check=False, timeout=120, **more)


def refused(capfd, *arguments):
    assert cli.main(list(arguments)) == 2
    said = capfd.readouterr()
    assert said.err.count("\n") == 1 and said.out == ""
    return said.err


def cpu_seconds(*arguments):
    """Processor time of one call, which other work on the machine does not change as it does the wall time."""
    with subprocess.Popen([*PIPELINE, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 and "usage: pipeline" in text
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("verb", [[], *([verb] for verb in cli.VERBS)])
def test_help_answers_in_half_a_second(verb):
    assert min(cpu_seconds(*verb, "--help") for _ in range(3)) < 0.5


@pytest.mark.parametrize("verb", ["sim2real", "train"])
def test_help_imports_nothing_heavy(verb):
    code = (
        "import sys; from robocoach.pipelines import cli\n"
        f"cli.main(['{verb}', '--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_setting_is_an_option_with_help_bounds_and_default():
    text = " ".join(run("sim2real", "--help", env={**os.environ, "COLUMNS": "200"}).stdout.split())
    for key, spec in fields(Sim2RealConfig).items():
        if key.rpartition(".")[0] not in sim2real.SECTIONS:  # verbs of their own take these
            continue
        assert f"--{key.replace('_', '-')}" in text
        assert spec.kind is str or spec.bounds in text
    for flag in SHORTCUTS.values():
        assert flag in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sim2reel"], ["no verb 'sim2reel'", "nearest is sim2real"]),
        (["sim2real", "--task", "stack-cub"], ["no task 'stack-cub'", "stack-cube"]),
        (["sim2real", "--profile", "tpu"], ["unknown profile", "cpu, gpu"]),
        (["sim2real", "--generate.demonstrations", "-5"], ["--generate.demonstrations", "'-5'", "at least 1"]),
        (["sim2real", "--train.lerning-rate", "1"], ["--train.lerning-rate", "--train.learning-rate"]),
        (["sim2real", "--train.learning_rate", "7"], ["--train.learning-rate", "'7'", "above 0 and at most 1"]),
        (["sim2real", "--minutes", "soon"], ["--train.minutes", "'soon'", "at least 0.05", "[min]"]),
        (["sim2real", "--seed"], ["--seed", "expected one argument"]),
        (["sim2real", "now"], ["'now' is not an option"]),
        (["sim2real", "--mix", "sim=ten"], ["sim=ten", "not a number"]),
        (["sim2real", "--mix", "sim=0,real=1"], ["samples no simulated data"]),
        (["sim2real", "--robot", "panda"], ["franky-control wheel", "version 5"]),
        (["sim2real", "--robot", "fr3", "--host", "10.0.0.2"], ["--dry-run"]),
        (["sim2real", "--robot", "fr3", "--dry-run"], ["--host"]),
        (["sim2real", "--host", "10.0.0.2"], ["--robot fr3"]),
        (["sim2real", "--dry-run", "maybe"], ["--deploy.dry-run", "'maybe'", "true or false"]),
        (["sim2real", "--config", "/nowhere/run.yaml"], ["/nowhere/run.yaml", "no such file"]),
        (["train", "--out", "x"], ["--data"]),
        (["train", "--data", "/nowhere", "--out", "x", "--batch-size", "0"], ["--batch-size", "at least 1"]),
        (["evaluate", "--checkpoint", "/nowhere", "--out", "x"], ["no checkpoint at /nowhere"]),
        (["evaluate", "--checkpoint", "/x", "--out", "x", "--split", "heldout"], ["run once"]),
        (["evaluate", "--checkpoint", "/x", "--out", "x", "--rollouts", "-1"], ["--rollouts", "at least 1"]),
        (["deploy", "--checkpoint", "/nowhere", "--out", "x"], ["no checkpoint at /nowhere"]),
        (["generate", "--out", "x", "--demonstrations", "0"], ["--demonstrations", "at least 1"]),
    ],
)
def test_a_mistake_gets_one_line_and_code_2(tmp_path, monkeypatch, capfd, arguments, words):
    monkeypatch.chdir(tmp_path)
    said = refused(capfd, *arguments)
    for word in words:
        assert word in said
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_is_no_dataset(tmp_path, capfd):
    (tmp_path / "data").mkdir()
    said = refused(capfd, "train", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"))
    assert "is no dataset" in said


SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CR5 = SHARED / "cr5-banana-lerobot-v21" / "cr5_banana_subset_v2.1"
needs_shared_data = pytest.mark.skipif(not CR5.is_dir(), reason="the shared data is not here")


@needs_shared_data
def test_a_foreign_dataset_is_not_trained_on(tmp_path, capfd):
    said = refused(capfd, "train", "--data", str(CR5), "--out", str(tmp_path / "out"), "--profile", "cpu")
    assert "contract.json" in said


@needs_shared_data
def test_real_data_of_another_meaning_is_refused_with_its_reasons(tmp_path, capfd):
    from robocoach.sim.genesis_env import contract

    (tmp_path / "data").mkdir()
    contract().save(tmp_path / "data")
    options = ["--data", str(tmp_path / "data"), "--real", str(CR5), "--out", str(tmp_path / "out"), "--profile", "cpu"]
    assert cli.main(["train", *options]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "cannot be used as real data" in said and "joint" in said and "velocit" in said


def test_video_all_films_every_rollout(tmp_path):
    from robocoach.pipelines import sim2real
    from robocoach.pipelines.options import parse, parser

    made = parser("sim2real", "", sim2real.SECTIONS, sim2real.EXTRAS, bare=False)
    assert parse(*made, ["--video", "all"]).values == {"evaluate.videos": "-1"}
    assert parse(*made, ["--video=3"]).values == {"evaluate.videos": "3"}


def test_tasks_lists_stack_cube():
    done = run("tasks")
    assert done.returncode == 0 and done.stdout.startswith("stack-cube")


@pytest.mark.parametrize(("variable", "value"), [("MUJOCO_GL", "bogus"), ("PYOPENGL_PLATFORM", "bogus")])
def test_no_gl_is_found_by_the_doctor_with_the_mend(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    finding = checks.gl()
    assert not finding.fine and f"unset {variable}={value}" in finding.mend and "apt-get install" in finding.mend


def test_no_gl_stops_the_main_job_in_its_check(tmp_path):
    blind = {**os.environ, "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent", "MUJOCO_GL": "egl"}
    done = run("sim2real", "--out", str(tmp_path / "run"), env=blind)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "OpenGL: does not render off screen" in done.stderr
    assert not (tmp_path / "run" / "demonstrations").exists()


def test_working_gl_is_found_fine():
    assert checks.gl().fine


def test_disk_space_is_measured_where_the_run_will_be(tmp_path):
    asked = []

    def usage(place):
        asked.append(place)
        return 0, 0, int(2e9)

    assert checks.disk(tmp_path / "not" / "yet", 1.5, usage).fine
    assert not checks.disk(tmp_path, 2.5, usage).fine
    assert asked == [tmp_path, tmp_path]


def test_an_arm_that_does_not_answer_is_a_lack_with_a_mend():
    finding = checks.fci("127.0.0.77", timeout_s=0.5)
    assert not finding.fine and "127.0.0.77:1337" in finding.seen and "FCI" in finding.mend


def test_a_closed_reader_is_no_fault():
    done = subprocess.run(f"{PIPELINE[0]} --help | head -1", shell=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_libraries_output_goes_to_the_log_and_lines_to_the_user(tmp_path):
    code = (
        "import os; from pathlib import Path; from robocoach.pipelines.console import Console; console = Console()\n"
        "with console.libraries_in(Path('log.txt')):\n"
        "    print('library', flush=True); os.system('echo child'); console.line('for the user')\n"
        "print('after')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("for the user\nafter\n", "")
    log = (tmp_path / "log.txt").read_text()
    assert "library\nchild\n" in log and "for the user" in log


def test_plain_progress_comes_at_intervals_with_rate_and_time_left(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("robocoach.pipelines.console.time.monotonic", lambda: now[0])
    with Console().bar("Demonstrate") as bar:
        for second in range(31):
            now[0] = float(second)
            bar.update(2 * second, 120, "episodes", "1 failed")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "  Demonstrate: 20/120 episodes  2.0 episodes/s  0:50 left  1 failed",
        "  Demonstrate: 40/120 episodes  2.0 episodes/s  0:40 left  1 failed",
        "  Demonstrate: 60/120 episodes  2.0 episodes/s  0:30 left  1 failed",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_clock(seconds, text):
    assert clock(seconds) == text
