"""A coach by its name, and the two that read nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from coach_views import Tree, asked, config_of

from robocoach.agent_loop.coaches.choose import make_coach
from robocoach.agent_loop.coaches.priors import NANO, PI05, priors
from robocoach.agent_loop.guard import guard
from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields

POOR = {"train__learning_rate": 2e-4, "train__executed_steps": 16, "train__batch_size": 2, "train__ema": 0.9999}


@pytest.mark.parametrize("name", ["rules", "tpe", "random", "one-shot", "none"])
def test_an_offline_coach_is_made_by_its_name(name):
    coach = make_coach(name)
    assert coach.name == name
    assert coach.whole_budget == (name in ("one-shot", "none"))


@pytest.mark.parametrize(
    "name", ["", "rule", "TPE", "tpe:3", "llm", "llm:openai", "llm::x", "llm:openai:", "cmd", "cmd: "]
)
def test_another_name_is_refused_with_the_mend(name):
    with pytest.raises(UserError, match=r"choose from rules, tpe|expected llm:PROVIDER:MODEL|expected cmd:PROGRAM"):
        make_coach(name)


def test_choosing_a_coach_loads_no_search_and_no_model_library():
    code = (
        "import sys; from robocoach.agent_loop.coaches.choose import make_coach\n"
        "[make_coach(name) for name in ('rules', 'tpe', 'random', 'one-shot', 'none')]\n"
        "print([name for name in ('optuna', 'pydantic_ai', 'torch', 'genesis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_one_shot_sets_what_is_out_of_range_to_its_typical_value_and_proposes_no_more():
    tree = Tree(config_of(**POOR))
    tree.add([1] * 10)
    coach = make_coach("one-shot")
    proposal = asked(coach, tree.view())
    config = guard(proposal, tree.nodes, tree.base).train
    assert (config.learning_rate, config.executed_steps, config.batch_size, config.ema) == (2e-3, 8, 64, 0.995)
    assert proposal.start == "base"
    tree.add([1] * 10, proposal.change, start="base")
    assert coach.propose(tree.view()) is None


def test_one_shot_reads_no_result():
    proposals = []
    for stages in ([0] * 10, [5] * 10):
        tree = Tree(config_of(**POOR))
        tree.add(stages)
        proposals.append(asked(make_coach("one-shot"), tree.view()))
    assert proposals[0] == proposals[1]


def test_one_shot_keeps_chunk_and_executed_steps_together():
    tree = Tree(config_of(train__policy="pi05", train__chunk_size=60, train__executed_steps=18))
    tree.add([1] * 10)
    assert guard(asked(make_coach("one-shot"), tree.view()), tree.nodes, tree.base).train.chunk_size == 16


def test_one_shot_has_nothing_to_say_of_usual_settings():
    tree = Tree()
    tree.add([1] * 10)
    assert make_coach("one-shot").propose(tree.view()) is None


def test_none_proposes_nothing():
    tree = Tree(config_of(**POOR))
    tree.add([1] * 10)
    assert make_coach("none").propose(tree.view()) is None


def test_typical_values_of_the_small_policy_are_the_defaults():
    for key, prior in priors().items():
        assert prior.typical == fields()[key].default, key


@pytest.mark.parametrize("policy", ["pi05_nano", "pi05"])
def test_every_prior_is_a_range_of_a_tunable_setting_around_its_typical_value(policy):
    for key, prior in priors(policy).items():
        low, high = prior.wider()
        spec = fields()[key]
        assert spec.tunable and prior.source and prior.holds(prior.typical), key
        assert low <= prior.low < prior.high <= high and spec.holds(spec.kind(low)) and spec.holds(spec.kind(high)), key


def test_the_large_policy_has_its_own_learning_rate():
    assert PI05.keys() <= {row[0] for row in NANO}
    assert priors("pi05")["train.learning_rate"].high < priors()["train.learning_rate"].low
