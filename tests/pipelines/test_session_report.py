"""The numbers of a session's record against numbers worked out by hand, and a page that hides nothing."""

import csv
import io
import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets import video
from robocoach.pipelines import session_report
from robocoach.robots.session import plan as plans
from robocoach.robots.session.events import next_trial
from robocoach.robots.session.plan import Contestant
from robocoach.robots.session.run import Session, begin, read_record
from robocoach.sim.tasks import get_task

TASK = get_task("stack-cube")
ROLLOUT = {
    "seed": 1,
    "reason": "time limit",
    "fault_of": "",
    "ticks": 120,
    "rate_hz": 10.0,
    "late_ticks": 1,
    "lateness_p99_ms": 2.0,
    "frame_age_p99_ms": 60.0,
    "inference_ms": 30.0,
    "clamps": {"joint_1 step": 2},
    "video": "",
}


def planned(folder, scenes, names=("a",), simulated=None, reference=0.0, secret=None):
    made = plans.make_plan(
        TASK,
        [Contestant(name, f"{index}" * 64, f"runs/{name}") for index, name in enumerate(names)],
        range(60_000_000, 60_000_000 + scenes),
        distractors=0,
        extra_trials=4,
        labels=sorted(secret.names) if secret else names,
        commitment=secret.commitment if secret else "",
        time_limit_s=12.0,
        robot="fr3",
        serial="295341-1325480",
        operator="Ada",
        verdict="ask",
        reference=reference,
        simulated=simulated or {},
        settings={"deploy.max_ticks": 120},
        accept=(),
        code_version="v1",
        made_at="2026-01-01T00:00:00+00:00",
    )
    begin(folder, made, secret)
    return made


def played(folder, verdicts, close=True, film=False):
    """Trials in the order of the plan; `verdicts` gives (kind, stage) for each, or says so by (scene, label)."""
    with Session(folder) as session:
        while (trial := next_trial(session.plan, session.state)) is not None:
            given = verdicts(trial) if callable(verdicts) else next(verdicts, None)
            if given is None:
                break
            kind, stage = given
            name = f"trial-{trial.number:03d}-wrist.mp4"
            if film:
                (folder / "rollouts").mkdir(exist_ok=True)
                grey = np.linspace(0, 200, 20).astype(np.uint8)[:, None, None, None]
                video.encode(np.broadcast_to(grey, (20, 224, 224, 3)), folder / "rollouts" / name)
            session.log.append("trial_started", **asdict(trial))
            session.log.append("trial_ended", trial=trial.number, rollout={**ROLLOUT, "video": name if film else ""})
            why = "" if kind == "success" else f"because of {trial.number}"
            session.log.append("verdict", trial=trial.number, kind=kind, stage=stage, reason=why, by="operator")
        if close:
            session.close_trials()
    return read_record(folder)


def test_a_rate_its_interval_and_the_funnel(tmp_path):
    planned(tmp_path, 10)
    outcomes = [("success", 5)] * 8 + [("failure", 2), ("failure", 0)]
    content = session_report.summary(played(tmp_path, iter(outcomes)))
    (only,) = content["checkpoints"]
    assert (only["successes"], only["n"]) == (8, 10)
    assert only["ci95"] == pytest.approx([0.4439, 0.9748], abs=1e-4)  # the table of every textbook
    assert only["stages"] == {"reach": 9, "grasp": 9, "lift": 8, "place": 8, "release": 8}
    assert content["complete"] and content["status"] == "closed" and content["pairs"] is None


def test_pairs_by_hand(tmp_path):
    planned(tmp_path, 10, ("a", "b"))

    def verdict(trial):  # both 2, only a 1, only b 7, neither 0
        wins = trial.scene <= 3 if trial.label == "a" else trial.scene != 3
        return ("success", 5) if wins else ("failure", 1)

    pairs = session_report.summary(played(tmp_path, verdict))["pairs"]
    assert (pairs["n"], pairs["both"], pairs["only_first"], pairs["only_second"], pairs["neither"]) == (10, 2, 1, 7, 0)
    assert pairs["mcnemar_p"] == pytest.approx(2 * (1 + 8) / 2**8)
    assert pairs["difference"] == pytest.approx(-0.6)
    assert pairs["smallest_difference"] == pytest.approx(0.674, abs=0.002)


def test_invalid_trials_do_not_count_and_are_all_there(tmp_path):
    planned(tmp_path, 3)
    record = played(tmp_path, iter([("success", 5), ("invalid", 0), ("failure", 3), ("invalid", 0), ("success", 5)]))
    content = session_report.summary(record)
    assert content["invalid"] == [2, 4] and content["extra_trials"] == {"used": 2, "allowed": 4}
    assert [row["number"] for row in content["trials"] if row["counts"]] == [1, 3, 5]
    assert content["checkpoints"][0]["n"] == 3 and content["checkpoints"][0]["invalid"] == 2
    page = session_report.page(record, content)
    assert "because of 2" in page and "because of 4" in page and "2 trials were invalid" in page


def test_a_scene_that_only_one_has_run_is_no_pair(tmp_path):
    planned(tmp_path, 2, ("a", "b"))
    record = played(tmp_path, iter([("success", 5), ("failure", 1), ("success", 5)]), close=False)
    content = session_report.summary(record)
    assert content["pairs"]["n"] == 1 and not content["complete"] and content["status"] == "open"
    assert sum(each["n"] for each in content["checkpoints"]) == 3


def test_simulation_is_compared_by_fishers_test(tmp_path):
    planned(tmp_path, 10, simulated={"a": "45/50"})
    content = session_report.summary(played(tmp_path, iter([("success", 5)] * 5 + [("failure", 1)] * 5)))
    simulated = content["checkpoints"][0]["simulated"]
    assert (simulated["successes"], simulated["n"]) == (45, 50)
    assert simulated["difference"] == pytest.approx(-0.4)
    assert simulated["fisher_p"] == pytest.approx(0.0078, abs=5e-4)


def test_the_simulators_rate_is_found_beside_the_checkpoint(tmp_path):
    checkpoint = tmp_path / "attempts" / "0001" / "checkpoints" / "last"
    checkpoint.mkdir(parents=True)
    assert session_report.simulated_rate(checkpoint) == ""
    score = {"validation": {"successes": 15, "n": 20}}
    (tmp_path / "attempts" / "0001" / "score.json").write_text(json.dumps(score))
    assert session_report.simulated_rate(checkpoint) == "15/20"
    score["heldout"] = {"successes": 37, "n": 50}
    (tmp_path / "attempts" / "0001" / "score.json").write_text(json.dumps(score))
    assert session_report.simulated_rate(checkpoint) == "37/50"


@pytest.mark.parametrize("text", ["45", "45/", "50/45", "a/b", "0/0", "-1/3"])
def test_a_rate_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="--sim-rate"):
        session_report.parse_rate(text)


def test_what_a_session_could_see_is_said_in_words():
    assert "67 points with 80 % power" in session_report.could_see(10, 2, 0.0)
    assert "at least 6" in session_report.could_see(5, 2, 0.0)
    assert session_report.could_see(10, 1, 0.5).endswith(
        "with 80 % power they tell true rates at or below 8 % or at or above 92 % from the reference of 50 %."
    )
    assert "no true rate" in session_report.could_see(3, 1, 0.5)


def test_the_control_rate_is_over_all_ticks(tmp_path):
    planned(tmp_path, 2)
    control = session_report.summary(played(tmp_path, iter([("success", 5), ("invalid", 0)]), close=False))["control"]
    assert control == {
        "rollouts": 2,
        "ticks": 240,
        "rate_hz": 10.0,
        "late_ticks": 2,
        "lateness_p99_ms": 2.0,
        "clamped_ticks": 4,
    }


def test_the_table_has_a_line_a_trial(tmp_path):
    planned(tmp_path, 2)
    content = session_report.summary(played(tmp_path, iter([("success", 5), ("invalid", 0), ("failure", 1)])))
    rows = list(csv.DictReader(io.StringIO(session_report.table(content))))
    assert [(row["number"], row["verdict"], row["stage_name"], row["replaces"]) for row in rows] == [
        ("1", "success", "release", "0"),
        ("2", "invalid", "", "0"),
        ("3", "failure", "reach", "2"),
    ]
    assert rows[0]["clamped_ticks"] == "2"


def test_files_of_a_session_without_a_trial_stand(tmp_path):
    planned(tmp_path, 2, ("a", "b"))
    content = session_report.write(read_record(tmp_path))
    assert content["status"] == "open" and "has no valid trial yet" in (tmp_path / session_report.PAGE).read_text()


def test_the_page_shows_itself_and_links_its_videos(tmp_path):
    planned(tmp_path, 2, ("<b>one", "two"))
    record = played(tmp_path, lambda trial: ("success", 5) if trial.label == "two" else ("failure", 3), film=True)
    session_report.write(record)
    page = (tmp_path / session_report.PAGE).read_text()
    links = re.findall(r'href="([^"]+)"', page)
    assert links and all((tmp_path / link).is_file() for link in links)
    assert all(source.startswith("data:image/jpeg") for source in re.findall(r'src="([^"]+)"', page))
    assert "<b>one" not in page and "&lt;b&gt;one" in page and not re.search(r"https?://", page)
    for told in ("295341-1325480", "Ada", "0" * 64, record.plan.digest, record.head, "Not signed", "v1"):
        assert told in page


def test_names_come_into_the_record_when_a_blind_session_is_closed(tmp_path):
    secret = plans.seal(["first", "second"])
    planned(tmp_path, 1, ("first", "second"), secret=secret)
    before = session_report.summary(played(tmp_path, iter([("success", 5), ("failure", 1)]), close=False))
    assert {each["name"] for each in before["checkpoints"]} == {None}
    assert {row["checkpoint"] for row in before["trials"]} == {None}
    with Session(tmp_path) as session:
        session.close_trials()
    after = session_report.summary(read_record(tmp_path))
    assert {each["label"]: each["name"] for each in after["checkpoints"]} == secret.names


def test_signing_an_open_session_closes_it_short_of_its_plan(tmp_path):
    planned(tmp_path, 3)
    played(tmp_path, iter([("success", 5)]), close=False)
    with Session(tmp_path) as session:
        session.sign("Ada Lovelace")
    content = session_report.write(read_record(tmp_path))
    assert content["status"] == "signed" and not content["complete"]
    assert "ended short of its plan" in (tmp_path / session_report.PAGE).read_text()


def test_a_record_whose_plan_was_exchanged_is_refused(tmp_path):
    made = planned(tmp_path, 2)
    (tmp_path / plans.PLAN_FILE).unlink()
    plans.freeze(tmp_path, replace(made, operator="Eve"))
    with pytest.raises(UserError, match="belongs to another plan"):
        read_record(tmp_path)
