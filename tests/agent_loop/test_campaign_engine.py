"""The engine's order and rules, with the real store, rules and files and attempts of milliseconds."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from table_workshop import FACTS, TableWorkshop

from robocoach.agent_loop.engine import STOP_FILE, Engine, Finished, Running
from robocoach.agent_loop.evidence import RolloutEvidence
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.store import Campaign
from robocoach.agent_loop.tree import CoachFailed, RateLimited, View
from robocoach.configs import load
from robocoach.configs.errors import UserError

SETTINGS: dict[str, Any] = {
    "train.minutes": 1.0,
    "evaluate.train_rollouts": 8,
    "evaluate.validation_rollouts": 20,
    "evaluate.heldout_rollouts": 30,
    "campaign.attempts": 5,
    "campaign.target": 1.0,
    "campaign.lessons": False,
}


@dataclass
class Scripted:
    """A coach that says what the test wants."""

    says: Callable[[View], Any]
    mends: Callable[[View, Proposal, str], Any] = lambda view, refused, reason: None
    name: str = "scripted"
    whole_budget: bool = False
    views: list[View] = field(default_factory=list)

    def propose(self, view: View) -> Proposal | None:
        self.views.append(view)
        return self.says(view)

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        return self.mends(view, refused, reason)

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        return None


def proposal(parent: int, start: Any = "parent", **change: Any) -> Proposal:
    named = {key.replace("__", "."): value for key, value in change.items()}
    return Proposal(parent, "scripted", "a reason", "because of 3 of 8", named, start=start)


def decay(view: View) -> Proposal:
    """Always something new, from the incumbent."""
    return proposal(view.incumbent, train__weight_decay=0.01 + 0.001 * len(view.nodes))


def campaign(
    folder: Path, coach: Any, workshop: TableWorkshop | None = None, **settings: Any
) -> tuple[Finished, TableWorkshop, Campaign]:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    config = load.build({**SETTINGS, **named})
    workshop = workshop or TableWorkshop(folder)
    store = Campaign(folder)
    told: list[str] = []
    done = Engine(Running(folder, config, FACTS, coach, workshop, store, told.append)).run()
    return done, workshop, store


def test_a_campaign_ends_at_its_attempts_and_keeps_the_first_with_most_validation_successes(tmp_path):
    done, _, store = campaign(tmp_path, Scripted(decay))
    attempts = store.attempts()
    assert [attempt.state for attempt in attempts] == ["done"] * 5
    full = {a.number: a.results["validation"] for a in attempts if not a.results["validation"]["stopped"]}
    most = max(validation["successes"] for validation in full.values())
    assert done.content["best"] == min(n for n, v in full.items() if v["successes"] == most)
    assert "attempts" in done.reason


def test_a_round_measures_train_seeds_before_validation_and_held_out_only_at_the_end(tmp_path):
    _, workshop, _ = campaign(tmp_path, Scripted(decay), campaign__attempts=2)
    assert workshop.calls[:6] == [
        "prepare",
        "preflight 0",
        "train 0",
        "rollouts 0 rollouts 8",
        "describe 0",
        "rollouts 0 validation 20",
    ]
    held = [index for index, call in enumerate(workshop.calls) if call.endswith(" 30")]
    assert held and min(held) > max(i for i, call in enumerate(workshop.calls) if call.startswith("train"))


def test_no_view_and_no_file_of_an_attempts_report_holds_a_validation_result(tmp_path):
    coach = Scripted(decay)
    campaign(tmp_path, coach, evaluate__validation_rollouts=19, campaign__stop_error=0.0)
    for view in coach.views:
        measured = [view.evidence(node.number) for node in view.measured]
        seen = repr(view.nodes) + view.feedback + repr(measured)
        assert not re.search(r"\d+(/| of )19\b", seen)
        assert not re.search(r"\b[23]\d{7}\b", seen), "a validation or held-out seed"


def test_winner_and_first_attempt_are_confirmed_on_the_same_scenes(tmp_path):
    done, _, store = campaign(tmp_path, Scripted(decay))
    confirm = store.get("confirm")
    assert confirm["winner"] == done.content["best"] != 0
    assert confirm["heldout"]["n"] == confirm["heldout_base"]["n"] == 30
    assert confirm["only_winner"] > confirm["only_base"]


def test_a_campaign_that_goes_on_after_its_end_confirms_on_fresh_scenes(tmp_path):
    _, _, store = campaign(tmp_path, Scripted(decay), campaign__attempts=2)
    first = store.get("seeds heldout 0")
    store.close()
    _, _, store = campaign(tmp_path, Scripted(decay), campaign__attempts=4)
    assert len(store.attempts()) == 4
    assert not set(first) & set(store.get("seeds heldout 1"))


def test_a_finished_campaign_run_again_does_nothing_again(tmp_path):
    campaign(tmp_path, Scripted(decay), campaign__attempts=2)
    done, workshop, _ = campaign(tmp_path, Scripted(decay), campaign__attempts=2)
    assert workshop.calls == ["prepare"] and done.state == "finished"


@pytest.mark.parametrize(("fault", "said"), [("nan", "not finite"), ("crash", "boom")])
def test_a_training_that_fails_counts_as_zero_and_its_child_cannot_take_its_weights(tmp_path, fault, said):
    refused: list[str] = []

    def mend(view: View, old: Proposal, reason: str) -> Proposal:
        refused.append(reason)
        return proposal(0, train__ema=0.9)

    def says(view: View) -> Proposal:
        return proposal(0, train__ema=0.99) if len(view.nodes) == 1 else proposal(1, train__ema=0.98)

    coach = Scripted(says, mend)
    _, _, store = campaign(tmp_path, coach, TableWorkshop(tmp_path, {1: fault}), campaign__attempts=3)
    failed = store.attempts()[1]
    assert (failed.state, failed.reverted) == ("failed", True) and said in failed.reason
    assert failed.results["batch"]["successes"] == 0 and failed.results["batch"]["n"] == 8
    assert failed.results["validation"] == {"successes": 0, "n": 20, "stopped": False}
    assert "no checkpoint" in refused[0]
    assert store.attempts()[2].parent == 0
    assert said in coach.views[1].feedback


def test_a_program_error_in_the_preflight_goes_back_to_the_coach_twice(tmp_path):
    reasons: list[str] = []

    def mend(view: View, old: Proposal, reason: str) -> Proposal:
        reasons.append(reason)
        return proposal(0, train__ema=0.9 + 0.01 * len(reasons))

    faults = {1: "preflight"}
    _, workshop, store = campaign(
        tmp_path, Scripted(decay, mend), TableWorkshop(tmp_path, faults), campaign__attempts=2
    )
    assert len(reasons) == 2 and "ImportError" in reasons[0]
    assert store.attempts()[1].state == "failed" and "preflight" in store.attempts()[1].reason
    assert workshop.calls.count("preflight 1") == 3 and "train 1" not in workshop.calls


def test_a_first_configuration_that_cannot_run_is_its_users_mistake(tmp_path):
    with pytest.raises(UserError, match=r"first configuration cannot run \(ImportError"):
        campaign(tmp_path, Scripted(decay), TableWorkshop(tmp_path, {0: "preflight"}))


def test_a_refused_proposal_gets_two_tries_and_then_the_parent_stands(tmp_path):
    tries: list[str] = []

    def mend(view: View, old: Proposal, reason: str) -> Proposal:
        tries.append(reason)
        return proposal(0, evaluate__train_rollouts=1)

    coach = Scripted(lambda view: proposal(0, seed=3), mend)
    done, _, store = campaign(tmp_path, coach, campaign__unchanged=2)
    assert len(tries) == 4
    assert [attempt.state for attempt in store.attempts()] == ["done", "rejected", "rejected"]
    assert store.attempts()[1].reason and "unchanged" in done.reason


def test_a_mended_proposal_is_tried(tmp_path):
    coach = Scripted(lambda view: proposal(0, seed=3), lambda view, old, reason: proposal(0, train__ema=0.9))
    _, _, store = campaign(tmp_path, coach, campaign__attempts=2)
    assert store.attempts()[1].change == {"train.ema": [0.995, 0.9]}
    assert json.loads((tmp_path / "attempts/0001/refusals.json").read_text())


def test_the_change_that_is_kept_is_computed_and_not_what_the_coach_says(tmp_path):
    coach = Scripted(
        lambda view: proposal(view.incumbent, train__ema=0.9 - 0.01 * len(view.nodes), train__clip_norm=1.0)
    )
    _, _, store = campaign(tmp_path, coach, campaign__attempts=2)
    assert store.attempts()[1].change == {"train.ema": [0.995, 0.89]}


def test_a_worse_attempt_is_reverted_and_the_incumbent_stands(tmp_path):
    def says(view: View) -> Proposal:
        if len(view.nodes) == 1:
            return proposal(0, start="base", train__learning_rate=1e-6)
        return decay(view)

    coach = Scripted(says)
    _, _, store = campaign(tmp_path, coach, TableWorkshop(tmp_path, steps=2.0), campaign__attempts=3)
    assert store.attempts()[1].reverted and "success" in store.attempts()[1].reason
    assert coach.views[1].incumbent == 0
    assert "revert" in coach.views[1].feedback.split("\n## ")[0].lower()


def test_an_attempt_that_cannot_become_the_best_ends_its_validation_early(tmp_path):
    coach = Scripted(lambda view: proposal(0, start="base", train__learning_rate=1e-6))
    _, _, store = campaign(tmp_path, coach, TableWorkshop(tmp_path, steps=2.0), campaign__attempts=2)
    validation = store.attempts()[1].results["validation"]
    assert validation["stopped"] and validation["n"] < 20


def test_a_coach_with_nothing_to_change_ends_the_campaign(tmp_path):
    done, _, store = campaign(tmp_path, Scripted(lambda view: None), campaign__unchanged=3)
    assert len(store.attempts()) == 1 and "unchanged" in done.reason


def test_a_coach_that_fails_leaves_the_parent_unchanged(tmp_path):
    def says(view: View) -> Proposal:
        raise CoachFailed("the provider answered 500")

    done, _, store = campaign(tmp_path, Scripted(says), campaign__unchanged=2)
    assert len(store.events("coach failed")) == 2 and "unchanged" in done.reason


def test_a_rate_limit_defers_the_round_and_counts_as_nothing(tmp_path):
    asked: list[int] = []

    def says(view: View) -> Proposal:
        asked.append(len(view.nodes))
        if len(asked) <= 4:
            raise RateLimited(0.0)
        return decay(view)

    _, _, store = campaign(tmp_path, Scripted(says), campaign__attempts=2, campaign__unchanged=2)
    assert len(store.attempts()) == 2 and len(store.events("deferred")) == 4


def test_money_that_a_proposal_cost_ends_the_campaign_at_its_cap(tmp_path):
    def says(view: View) -> Proposal:
        made = decay(view)
        return replace(made, cost_usd=0.6)

    done, _, store = campaign(tmp_path, Scripted(says), campaign__spend_usd=1.0)
    assert store.get("spent_usd") == pytest.approx(1.2) and len(store.attempts()) == 3
    assert "spen" in done.reason


def test_an_attempt_that_could_not_finish_in_the_budget_is_not_started(tmp_path):
    done, workshop, _ = campaign(tmp_path, Scripted(decay), campaign__hours=0.5 / 60)
    assert workshop.calls.count("train 0") == 1 and "train 1" not in workshop.calls
    assert "would not finish within the wall time" in done.reason


def test_a_coach_of_one_proposal_gives_it_the_rest_of_the_attempts_time(tmp_path):
    coach = Scripted(lambda view: proposal(0, train__ema=0.9), name="one-shot", whole_budget=True)
    _, _, store = campaign(tmp_path, coach)
    configs = [load.read_yaml(tmp_path / f"attempts/000{number}/config.yaml") for number in (0, 1)]
    assert [config["train"]["minutes"] for config in configs] == [1.0, 4.0]
    assert len(store.attempts()) == 2 and "train.minutes" not in store.attempts()[1].change


def test_no_coach_gives_the_whole_budget_to_the_first_configuration(tmp_path):
    _, _, store = campaign(tmp_path, Scripted(lambda view: None, name="none", whole_budget=True))
    assert len(store.attempts()) == 1
    assert load.read_yaml(tmp_path / "attempts/0000/config.yaml")["train"]["minutes"] == 5.0


def test_evidence_from_the_arm_waits_for_the_operator_and_goes_on(tmp_path):
    trial = RolloutEvidence(seed=1, success=True, stage=2, ticks=40)
    ready: list[bool] = []
    workshop = TableWorkshop(tmp_path, steps=3.0, trials=lambda job: (trial,) if ready else None)
    settings = {"campaign__evidence": "both", "campaign__attempts": 2}
    done, _, store = campaign(tmp_path, Scripted(decay), workshop, **settings)
    assert done.state == "awaiting operator" and store.attempts()[0].state == "awaiting operator"
    store.close()
    ready.append(True)
    done, _, store = campaign(tmp_path, Scripted(decay), workshop, **settings)
    assert done.state == "finished" and [a.state for a in store.attempts()] == ["done", "done"]
    assert store.attempts()[0].results["hardware"]["successes"] == 1


def test_an_attempt_that_fails_in_simulation_never_goes_to_the_arm(tmp_path):
    asked: list[int] = []
    workshop = TableWorkshop(tmp_path, steps=1e-6, trials=lambda job: asked.append(job.number))
    done, _, _ = campaign(tmp_path, Scripted(decay), workshop, campaign__evidence="both", campaign__attempts=2)
    assert done.state == "finished" and asked == []


def test_a_stop_request_ends_the_search_after_the_running_attempt_and_confirms(tmp_path):
    def says(view: View) -> Proposal:
        (tmp_path / STOP_FILE).touch()
        return decay(view)

    done, _, store = campaign(tmp_path, Scripted(says))
    assert len(store.attempts()) == 2 and done.reason == "stopped by the user"
    assert store.get("confirm") is not None


def test_attempts_run_side_by_side_where_there_are_devices_for_them(tmp_path):
    workshop = TableWorkshop(tmp_path, lanes=3, seconds=0.02)
    _, _, store = campaign(tmp_path, Scripted(decay), workshop, campaign__attempts=7)
    assert [attempt.number for attempt in store.attempts()] == list(range(7))
    assert {attempt.state for attempt in store.attempts()} == {"done"}


def test_without_branching_a_proposal_from_another_parent_is_refused(tmp_path):
    reasons: list[str] = []

    def mend(view: View, old: Proposal, reason: str) -> Proposal:
        reasons.append(reason)
        return proposal(view.measured[-1].number, train__ema=0.9 + 0.01 * len(view.nodes))

    coach = Scripted(lambda view: proposal(0, train__weight_decay=0.02 + 0.01 * len(view.nodes)), mend)
    _, _, store = campaign(tmp_path, coach, campaign__without="branching", campaign__attempts=3)
    assert [attempt.parent for attempt in store.attempts()] == [None, 0, 1]
    assert "branching is switched off" in reasons[0]


def test_a_folder_that_cannot_be_kept_below_its_cap_ends_the_search_and_is_confirmed(tmp_path):
    done, _, store = campaign(tmp_path, Scripted(decay), campaign__disk_gb=1e-6)
    assert "raise campaign.disk_gb" in done.reason and len(store.attempts()) == 1
    assert done.content["confirm"]["winner"] == 0
    again, _, _ = campaign(tmp_path, Scripted(decay), campaign__disk_gb=1.0)
    assert again.reason == "all 5 attempts are made"
