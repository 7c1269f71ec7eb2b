"""The comparison of coaches and the ablation, from rows made up here: `benchmarks/_coach_table.py` and its commands."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def module(name):
    """A module of `benchmarks`, which is no package, under the name that its neighbours import it by."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


table = module("_coach_table")
campaigns = module("_campaigns")
drawing = module("_coach_figure")
coach, ablation = module("coach"), module("ablation")

NAMES = ("rules", "tpe", "random", "one-shot", "none")
BUDGET = table.Budget(attempts=12, attempt_s=30.0)


def attempt(coach, seed, number, validation, *, train=0, stopped=False, n=20, training_s=30.0, state="done"):
    return {
        "coach": coach,
        "seed": seed,
        "attempt": number,
        "state": state,
        "train": None if state == "rejected" else {"successes": train, "n": 10},
        "validation": None if validation is None else {"successes": validation, "n": n, "stopped": stopped},
        "training_s": training_s,
    }


def ended(rows, heldout=10, base=3):
    counted = None if heldout is None else {"successes": heldout, "n": 50, "ci95": [0, 1]}
    return [*rows[:-1], {**rows[-1], "heldout": counted, "heldout_base": {"successes": base, "n": 50}, "wall_s": 1800}]


def campaign(coach, seed, validations, heldout=10):
    return ended([attempt(coach, seed, number, one) for number, one in enumerate(validations)], heldout)


ROWS = [
    *campaign("rules", 0, [2, 10, 8], heldout=30),
    *campaign("rules", 1, [2, 4, 6], heldout=20),
    *campaign("tpe", 0, [2, 3, 9], heldout=25),
    *campaign("tpe", 1, [2, 8, 1], heldout=22),
]


def found(rows=ROWS):
    return table.runs(rows, NAMES)


def aggregate(rows=ROWS):
    return table.aggregate(found(rows), BUDGET)


def test_the_overhead_is_taken_between_attempts_only():
    first = {**attempt("rules", 0, 0, 3), "seconds": {"preflight": 60.0, "waited": 1.0}}
    second = {**attempt("rules", 0, 1, 4), "seconds": {"overhead": 0.1, "preflight": 3.0, "waited": 0.8}}
    third = {**attempt("rules", 0, 2, 5), "seconds": {"overhead": 0.3, "preflight": 5.0, "waited": 1.0}}
    told = table.overheads(found(ended([first, second, third])))
    assert told["preflight"] == {"median": 4.0, "longest": 5.0, "n": 2}
    assert told["overhead"]["longest"] == 0.3
    assert table.overheads({}) == {} and table.overhead_words({}) == ""


counted = st.one_of(st.none(), st.tuples(st.integers(0, 20), st.booleans()))


@given(st.lists(counted, min_size=1, max_size=12))
def test_the_best_so_far_never_falls_and_ends_at_the_best_whole_validation(measured):
    rows = [
        attempt("rules", 0, number, one and one[0], stopped=bool(one and one[1])) for number, one in enumerate(measured)
    ]
    best = found(ended(rows))["rules"][0].best_validation()
    assert best == sorted(best) and len(best) == len(measured)
    assert best[-1] == max([one[0] / 20 for one in measured if one and not one[1]], default=0.0)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(0, 20))
def test_a_goal_is_reached_by_the_first_attempt_that_is_as_good(validations, goal):
    best = found(campaign("rules", 0, validations))["rules"][0].best_validation()
    after = table.attempts_to_reach(best, list(range(1, len(best) + 1)), goal / 20)
    assert after == next((number for number, one in enumerate(validations, 1) if one >= goal), None)


def test_a_validation_that_ended_early_never_counts_as_best_whatever_its_own_share():
    rows = [attempt("rules", 0, 0, 4), attempt("rules", 0, 1, 3, n=4, stopped=True), attempt("rules", 0, 2, None)]
    assert aggregate(ended(rows))["rules"]["best_validation"] == [[0.2, 0.2, 0.2]]


def test_an_attempt_that_failed_or_was_refused_counts_as_zero():
    rows = [
        attempt("rules", 0, 0, 4, train=5),
        attempt("rules", 0, 1, 0, state="failed", training_s=None),
        attempt("rules", 0, 2, None, state="rejected", training_s=None),
    ]
    one = aggregate(ended(rows))["rules"]
    assert one["train"] == [[0.5, 0.0, 0.0]] and one["attempts_used"] == [[1, 2, 3]]


def test_heldout_success_is_that_of_all_seeds_together_with_its_exact_interval():
    one = aggregate()["tpe"]
    assert (one["heldout"]["successes"], one["heldout"]["n"]) == (47, 100)
    assert one["heldout"]["ci95"] == pytest.approx([0.3694, 0.5724], abs=1e-4)
    assert [seed["successes"] for seed in one["heldout_by_seed"]] == [25, 22]


def test_attempts_until_the_final_validation_of_tpe_are_counted_on_the_same_seed():
    made = aggregate()
    assert made["rules"]["attempts_to_reach_final_tpe"] == [2, None]
    assert made["tpe"]["attempts_to_reach_final_tpe"] == [3, 2]


def test_on_a_seed_without_tpe_nothing_is_reached():
    assert aggregate([*ROWS, *campaign("rules", 9, [20])])["rules"]["attempts_to_reach_final_tpe"] == [2, None, None]


@pytest.mark.parametrize(("seconds", "used"), [(361.0, 12), (180.0, 6), (999.0, 12), (None, 1)])
def test_the_one_long_training_counts_as_the_share_of_the_budget_that_it_used(seconds, used):
    rows = ended([attempt("none", 0, 0, 12, training_s=seconds)])
    assert aggregate([*ROWS, *rows])["none"]["attempts_to_reach_final_tpe"] == [used]


def test_one_shot_spends_its_second_attempt_on_the_rest():
    rows = ended([attempt("one-shot", 0, 0, 2), attempt("one-shot", 0, 1, 9, training_s=331.0)])
    assert aggregate(rows)["one-shot"]["attempts_used"] == [[1, 12]]


def test_a_long_training_of_another_coach_is_still_one_attempt():
    rows = ended([attempt("rules", 0, 0, 2), attempt("rules", 0, 1, 9, training_s=90.0)])
    assert aggregate(rows)["rules"]["attempts_used"] == [[1, 2]]


def test_a_campaign_that_is_not_finished_is_missing_and_in_no_number():
    made = found([*ROWS, *campaign("random", 0, [20], heldout=None)])
    assert "random" not in made
    assert ("random", 0) in table.missing(made, NAMES, (0, 1))
    assert table.progress(made, NAMES, (0, 1, 2)).startswith("4 of 15 campaigns; missing: random on seed 0, ")


def test_when_every_campaign_is_there_nothing_is_told_missing():
    assert table.progress(found(), ("rules", "tpe"), (0, 1)) == "4 of 4 campaigns"


def test_a_missing_or_doubled_attempt_is_refused():
    for rows in (ROWS[1:], [*ROWS, ROWS[0]]):
        with pytest.raises(ValueError, match="rules, seed 0: attempts"):
            found(rows)


@given(st.permutations(ROWS))
def test_the_order_of_the_rows_does_not_matter(rows):
    assert aggregate(rows) == aggregate()


def test_a_difference_is_paired_over_common_seeds_with_a_student_interval():
    made = found([*ROWS, *campaign("rules", 7, [20])])
    told = table.difference(made["rules"], made["tpe"], table.heldout_share)
    # (0.10, −0.04): mean 0.03, deviation 0.099, t 12.706 with one degree of freedom
    assert (told.mean, told.seeds) == (pytest.approx(0.03), 2)
    assert told.interval == pytest.approx((0.03 - 12.7062 * 0.07, 0.03 + 12.7062 * 0.07), abs=1e-4)


def test_one_seed_has_a_difference_and_no_interval_and_no_seed_has_none():
    made = found([*ROWS, *campaign("random", 0, [20]), *campaign("none", 5, [20])])
    assert table.difference(made["random"], made["tpe"], table.final_validation) == table.Difference(0.55, None, 1)
    assert table.difference(made["none"], made["tpe"], table.final_validation) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=5))
def test_turning_a_comparison_around_turns_its_interval_around(pairs):
    one = found([row for seed, (a, _) in enumerate(pairs) for row in campaign("rules", seed, [a])])["rules"]
    other = found([row for seed, (_, b) in enumerate(pairs) for row in campaign("tpe", seed, [b])])["tpe"]
    there = table.difference(one, other, table.final_validation)
    back = table.difference(other, one, table.final_validation)
    assert -1 <= there.interval[0] <= there.mean + 1e-12 and there.mean - 1e-12 <= there.interval[1] <= 1
    assert (there.mean, *there.interval) == pytest.approx((-back.mean, -back.interval[1], -back.interval[0]))


def test_the_table_has_differences_from_the_reference_with_intervals():
    lines = table.by_coach(found(), "rules").splitlines()
    assert lines[2] == "| `rules` | 2 | 40 % (30–50) | 50/100 = 50 % (40–60) | – | – |"
    assert lines[3] == (
        "| `tpe` | 2 | 43 % (40–45) | 47/100 = 47 % (37–57) | +2.5 (−92.8 to +97.8; 2 seeds) "
        "| −3.0 (−91.9 to +85.9; 2 seeds) |"
    )


def test_the_table_by_seed_has_the_counts_of_each_campaign():
    rows = [attempt("rules", 0, 0, 4), attempt("rules", 0, 1, 1, n=4, stopped=True), attempt("rules", 0, 2, 7)]
    line = table.by_seed(found([*ended(rows), *campaign("tpe", 0, [9])]), BUDGET).splitlines()[2]
    assert line == ("| `rules` | 0 | 3 | 0 | 1 | 4/20 | 7/20 (2) | 10/50 = 20 % (10–34) | 3/50 | 30 | never |")


@pytest.mark.parametrize(("seeds", "word"), [(1, "One seed"), (3, "With 3 seeds"), (4, "")])
def test_so_few_seeds_name_no_winner(seeds, word):
    text = table.notes(found([row for seed in range(seeds) for row in campaign("rules", seed, [3])]))
    assert ("no winner" in text) == bool(word) and word in text


def test_the_curve_of_the_best_stands_to_the_end_of_the_budget():
    own = found(campaign("rules", 0, [2, 10]))["rules"]
    assert drawing.by_attempt(own, table.Budget(4, 30.0), validation=True) == (
        [1, 2, 3, 4],
        [[0.1], [0.5], [0.5], [0.5]],
    )
    assert drawing.by_attempt(own, table.Budget(4, 30.0), validation=False)[0] == [1, 2]


def test_a_coach_of_one_training_is_one_point_at_the_mean_share_that_it_used():
    rows = [
        *ended([attempt("none", 0, 0, 12, training_s=360.0)]),
        *ended([attempt("none", 1, 0, 6, training_s=300.0)]),
    ]
    assert drawing.by_training(found(rows)["none"], BUDGET, validation=True) == ([11.0], [[0.6, 0.3]])


def test_a_campaign_that_fails_does_not_end_the_others_and_is_named(tmp_path, monkeypatch, capsys):
    ran, told = [], []

    def run(name, seed, *_):
        ran.append((name, seed))
        if name == "tpe":
            raise subprocess.CalledProcessError(3, ["pipeline"])

    monkeypatch.setattr(campaigns, "campaign", run)
    todo = [(name, 0, [], tmp_path / f"{name}-0.jsonl") for name in ("rules", "tpe", "none")]
    failed = campaigns.attempt_all(todo, tmp_path, tmp_path, lambda: told.append(len(ran)))
    assert ran == [("rules", 0), ("tpe", 0), ("none", 0)] and told == [1, 2, 3]
    assert failed == ["tpe-0"] and "tpe-0: failed with exit code 3" in capsys.readouterr().err


def test_the_budget_is_that_of_the_start():
    assert campaigns.budget() == BUDGET


def keep(folder, rows):
    for row in rows:
        path = folder / f"{row['coach']}-{row['seed']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def test_the_command_writes_figure_and_page_and_prints_json_last(tmp_path):
    keep(tmp_path / "rows", ROWS)
    options = ["--report-only", "--seeds", "0,1", "--results", str(tmp_path / "rows"), "--docs", str(tmp_path)]
    command = [sys.executable, str(BENCHMARKS / "coach.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    content = json.loads(done.stdout.splitlines()[-1])
    assert {name: content[name] for name in ("rules", "tpe")} == aggregate()
    assert content["campaigns"]["done"] == 4 and content["campaigns"]["of"] == 10 and "cores" in content["machine"]
    page = (tmp_path / "coach-comparison.md").read_text()
    assert "4 of 10 campaigns; missing: random on seed 0" in page and "learning_rate: 2.0e-4" in page
    assert (tmp_path / "coach-comparison.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_reports_before_anything_was_run(tmp_path, capsys):
    assert coach.main(["--report-only", "--results", str(tmp_path / "none"), "--docs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["campaigns"]["done"] == 0
    assert "0 of 15 campaigns" in (tmp_path / "coach-comparison.md").read_text()


def test_the_ablation_takes_all_channels_from_the_comparison_of_coaches(tmp_path, capsys):
    keep(tmp_path / "rows" / "coach", ROWS[:3])
    keep(tmp_path / "rows" / "ablation", campaign("without-video", 0, [2, 5], heldout=25))
    assert ablation.main(["--report-only", "--results", str(tmp_path / "rows"), "--docs", str(tmp_path)]) == 0
    content = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert content["all"]["heldout"]["successes"] == 30 and content["without-video"]["best_validation"] == [[0.1, 0.25]]
    page = (tmp_path / "coach-ablation.md").read_text()
    assert "2 of 6 campaigns" in page and "−10.0 (one seed, no interval)" in page and "names no winner" in page


def test_campaigns_are_run_seed_by_seed_with_all_coaches_of_a_seed(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(coach, "dataset", lambda work: work)
    monkeypatch.setattr(campaigns, "campaign", lambda name, seed, *rest: ran.append((name, seed, rest[2])))
    places = [word for name in ("work", "results", "docs") for word in (f"--{name}", str(tmp_path / name))]
    assert coach.main(["--seeds", "4,2", "--coaches", "tpe,rules", *places]) == 0
    assert ran == [(name, seed, ["--coach", name]) for seed in (4, 2) for name in ("rules", "tpe")]


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--coaches", "rules,best"), "choose from rules, tpe"), (("--seeds", "0,x"), "such as 0,1,2")],
)
def test_unknown_coaches_and_seeds_are_refused_before_anything_runs(tmp_path, capsys, options, word):
    with pytest.raises(SystemExit) as left:
        coach.main([*options, "--work", str(tmp_path / "work"), "--docs", str(tmp_path)])
    assert left.value.code == 2 and word in capsys.readouterr().err and not (tmp_path / "work").exists()
