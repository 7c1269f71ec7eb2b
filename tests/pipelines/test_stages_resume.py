"""The main job's order, skipping, resuming and interruption, with small stand-ins for the stages' bodies."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from robocoach.agent_loop.store import Campaign
from robocoach.configs.errors import UserError
from robocoach.pipelines import checks, cli, runfolder, stages

STAGES = ("reach", "grasp", "lift", "place", "release")
BODIES = ("check", "demonstrate", "record", "finetune", "evaluate", "improve", "confirm", "deploy", "report")


class StandIns:
    """Bodies that write a file each and note that they were called; `fails` maps a body to what it raises, once."""

    def __init__(self):
        self.calls = []
        self.fails = {}
        self.validation = {0: [True, False], 1: [True, True]}
        self.train_stage = 3
        self.free_bytes = 10**12

    def _called(self, name):
        self.calls.append(name)
        if name in self.fails:
            raise self.fails.pop(name)

    def check(self, config, folder, bar):
        self._called("check")
        checks.require(checks.disk(folder, 1.0, usage=lambda _: (0, 0, self.free_bytes)))
        return {"line": "fine", "versions": {"python": "3.12"}}

    def open_pool(self, config):
        return SimpleNamespace(close=lambda: self.calls.append("pool closed"))

    def demonstrate(self, pool, config, folder, bar, maker=None):
        folder.mkdir(parents=True, exist_ok=True)
        self._called("demonstrate")
        for done in range(config.generate.demonstrations):
            bar.update(done + 1, config.generate.demonstrations, "demonstrations")
        return {"succeeded": config.generate.demonstrations, "failed": 1, "indices": [0, 2]}

    def record(self, folder, indices, root, config, bar):
        self._called("record")
        root.mkdir(parents=True)
        return {"episodes": 2, "frames": 99, "digest": f"data of {folder.name}"}

    def policy_maker(self, checkpoint):
        return checkpoint

    def finetune(self, config, datasets, attempt, init_from, proposal, bar):
        self._called("finetune")
        (attempt / "checkpoints" / "last").mkdir(parents=True, exist_ok=True)
        (attempt / "train.json").write_text("{}")
        names = [source.name for source in datasets]
        return {
            "checkpoint": "checkpoints/last",
            "digest": f"weights {attempt.name} {config.train.learning_rate} {config.train.minutes} {names}",
            "stopped": "deadline",
            "line": "trained",
        }

    def _counted(self, outcomes):
        done = [
            SimpleNamespace(seed=i, success=o, stage=5 if o else self.train_stage, stages=STAGES, ticks=9, aborted="")
            for i, o in enumerate(outcomes)
        ]
        return done, stages.summary(done)

    def evaluate(self, pool, config, checkpoint, attempt, validation_folder, bar):
        self._called("evaluate")
        train, counted = self._counted([False, False, True])
        (attempt / "rollouts" / "train").mkdir(parents=True, exist_ok=True)
        for rollout in train:
            (attempt / "rollouts" / "train" / f"{rollout.seed}.json").write_text(json.dumps(vars(rollout)))
        validation_folder.mkdir(parents=True, exist_ok=True)
        validation = self._counted(self.validation[int(attempt.name)])[1]
        (attempt / "score.json").write_text(json.dumps({"validation": validation}))
        return {"train": counted, "validation": validation}

    def confirm(self, pool, config, who, folder, bar):
        self._called("confirm")
        (folder / "heldout").mkdir(exist_ok=True)
        return {str(number): self._counted([True] * (3 + number) + [False] * (2 - number))[1] for number, _ in who}

    def deploy(self, config, checkpoint, folder, bar):
        self._called("deploy")
        folder.mkdir(exist_ok=True)
        return {"line": "deployed", "twin_demonstrator": {"successes": 9, "n": 10}, "deploy": {"rollouts": 10}}

    def report(self, config, folder, result, seconds, started, bar):
        self._called("report")
        (folder / "report.html").write_text("<html>")
        (folder / "result.json").write_text(json.dumps({**result, "stages": seconds}))
        return {}


@pytest.fixture
def bodies(monkeypatch):
    """The stand-ins, in the place of the real bodies."""
    made = StandIns()
    real_improve = stages.improve

    def improve(*arguments):
        made._called("improve")
        return real_improve(*arguments)

    for name in [*BODIES, "open_pool", "policy_maker"]:
        monkeypatch.setattr(stages, name, improve if name == "improve" else getattr(made, name))
    return made


def pipeline(tmp_path, *options):
    return cli.main(["sim2real", "--out", str(tmp_path / "run"), "--profile", "cpu", *options])


def result_of(tmp_path):
    return json.loads((tmp_path / "run" / "result.json").read_text())


def stage_calls(bodies):
    return [call for call in bodies.calls if call != "pool closed"]


def test_all_stages_run_in_order_and_a_second_attempt_is_made(tmp_path, bodies):
    bodies.train_stage = 1
    assert pipeline(tmp_path) == 0
    assert stage_calls(bodies) == [
        *["check", "demonstrate", "record", "finetune", "evaluate", "improve"],
        *["finetune", "evaluate", "confirm", "deploy", "report"],
    ]
    result = result_of(tmp_path)
    assert result["winner"] == 1 and result["attempts"][1]["change"] and result["attempts"][1]["parent"] == 0
    assert result["heldout"]["successes"] == 4 and result["heldout_base"]["successes"] == 3


def test_corrective_demonstrations_are_made_when_the_coach_asks(tmp_path, bodies):
    assert pipeline(tmp_path) == 0
    assert stage_calls(bodies).count("demonstrate") == 2
    assert "corrective" in result_of(tmp_path)["attempts"][1]["training"]["digest"]


def test_a_worse_second_attempt_is_reported_and_not_kept(tmp_path, bodies, capfd):
    bodies.validation[1] = [False, False]
    assert pipeline(tmp_path) == 0
    result = result_of(tmp_path)
    assert result["winner"] == 0 and len(result["attempts"]) == 2 and not result["attempts"][1]["kept"]
    assert "attempt 1 is worse" in result["selection"]
    assert result["heldout"] == result["heldout_base"]
    assert "it ran once" in capfd.readouterr().out
    store = Campaign(tmp_path / "run")
    assert [attempt.state for attempt in store.attempts()] == ["done", "done"]
    assert store.get("best") == 0


def test_without_a_coach_there_is_one_attempt(tmp_path, bodies):
    assert pipeline(tmp_path, "--improve.coach", "none") == 0
    assert len(result_of(tmp_path)["attempts"]) == 1 and "improve" not in bodies.calls


def test_a_finished_run_costs_only_the_check(tmp_path, bodies):
    pipeline(tmp_path)
    bodies.calls.clear()
    started = time.monotonic()
    assert pipeline(tmp_path) == 0
    assert stage_calls(bodies) == ["check"] and time.monotonic() - started < 2


@pytest.mark.parametrize("body", BODIES)
def test_ctrl_c_in_a_stage_saves_the_state_and_prints_the_line_that_resumes(tmp_path, bodies, capfd, body):
    bodies.fails[body] = KeyboardInterrupt()
    assert pipeline(tmp_path) == 130
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].endswith(f"pipeline sim2real --resume --out {tmp_path / 'run'}")
    assert len(Campaign(tmp_path / "run").events("interrupted")) == 1
    first = stage_calls(bodies)
    bodies.calls.clear()
    assert cli.main(["sim2real", "--resume", "--out", str(tmp_path / "run")]) == 0
    again = stage_calls(bodies)
    assert again[: 1 if body == "check" else 2] == list(dict.fromkeys(["check", body]))
    assert len(first) + len(again) == 13 + 1 + (body != "check")
    assert result_of(tmp_path)["winner"] == 1


@pytest.mark.parametrize("body", BODIES)
def test_a_fault_in_a_stage_gets_one_line_with_the_log(tmp_path, bodies, capfd, body):
    bodies.fails[body] = RuntimeError("the arm\nfell off")
    assert pipeline(tmp_path) == 1
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "RuntimeError: the arm fell off" in said[0] and "log.txt" in said[0]
    assert "Traceback" in (tmp_path / "run" / "log.txt").read_text()
    assert pipeline(tmp_path) == 0


@pytest.mark.parametrize("body", BODIES)
def test_a_users_mistake_found_in_a_stage_gets_one_line_and_code_2(tmp_path, bodies, capfd, body):
    bodies.fails[body] = UserError("the port is busy; free it")
    assert pipeline(tmp_path) == 2
    assert capfd.readouterr().err == "pipeline: the port is busy; free it\n"


def test_a_full_disk_in_a_stage_gets_one_line_and_code_2(tmp_path, bodies, capfd):
    bodies.fails["record"] = OSError(28, "No space left on device", "/data/x")
    assert pipeline(tmp_path) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "no space left" in said and "--resume" in said


def test_too_little_space_is_refused_before_long_work(tmp_path, bodies, capfd):
    bodies.free_bytes = 5 * 10**8
    assert pipeline(tmp_path) == 2
    assert stage_calls(bodies) == ["check"]
    assert "0.5 GB free" in capfd.readouterr().err


def test_a_setting_that_changed_redoes_only_the_stages_it_changes(tmp_path, bodies):
    pipeline(tmp_path, "--minutes", "1")
    bodies.calls.clear()
    assert pipeline(tmp_path, "--resume", "--minutes", "2") == 0
    assert stage_calls(bodies)[:4] == ["check", "finetune", "evaluate", "improve"]
    assert list((tmp_path / "run" / "replaced").glob("finetune-*/attempts/0000/checkpoints"))


def test_other_settings_without_resume_are_refused_and_named(tmp_path, bodies, capfd):
    pipeline(tmp_path, "--minutes", "1")
    bodies.calls.clear()
    assert pipeline(tmp_path, "--minutes", "2") == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "train.minutes 1.0 there, 2.0 now" in said and not bodies.calls


def test_a_refused_run_may_begin_again_with_the_mended_option(tmp_path, bodies, capfd):
    bodies.fails["demonstrate"] = UserError("add --accept robot")
    assert pipeline(tmp_path, "--minutes", "1") == 2
    assert pipeline(tmp_path, "--minutes", "1", "--accept", "robot") == 0


def test_output_that_was_deleted_is_made_again(tmp_path, bodies):
    pipeline(tmp_path)
    (tmp_path / "run" / "report.html").unlink()
    bodies.calls.clear()
    pipeline(tmp_path)
    assert stage_calls(bodies) == ["check", "report"]


def test_a_second_writer_on_the_same_folder_is_refused(tmp_path, bodies, capfd):
    with runfolder.locked(tmp_path / "run"):
        assert pipeline(tmp_path) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "being written by another pipeline" in said and not bodies.calls


def test_the_lock_goes_with_its_holder(tmp_path, bodies):
    with runfolder.locked(tmp_path / "run"):
        pass
    assert pipeline(tmp_path) == 0


def test_a_folder_with_other_files_is_left_alone(tmp_path, bodies, capfd):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("x")
    assert pipeline(tmp_path) == 2
    assert "thesis.tex" in capfd.readouterr().err and not bodies.calls


def test_a_file_as_out_is_refused(tmp_path, bodies, capfd):
    (tmp_path / "run").write_text("x")
    assert pipeline(tmp_path) == 2
    assert "is a file" in capfd.readouterr().err


def test_nothing_to_resume_is_said(tmp_path, bodies, capfd):
    assert pipeline(tmp_path, "--resume") == 2
    assert "holds no run" in capfd.readouterr().err


def test_a_damaged_ledger_is_refused_by_name(tmp_path, bodies, capfd):
    pipeline(tmp_path)
    (tmp_path / "run" / "stages" / "record.json").write_text('{"digest": ')
    assert pipeline(tmp_path) == 2
    assert "record.json is damaged" in capfd.readouterr().err


def test_the_pool_is_closed_however_the_run_ends(tmp_path, bodies):
    for failure in (KeyboardInterrupt(), RuntimeError("x"), UserError("x")):
        bodies.fails["evaluate"] = failure
        bodies.calls.clear()
        pipeline(tmp_path)
        assert bodies.calls[-1] == "pool closed"
