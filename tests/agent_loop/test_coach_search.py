"""TPE and random search: rebuilt from the tree, blind to evidence, within the stated space, always what passes."""

from __future__ import annotations

import random

import pytest
from coach_views import Tree, asked, config_of

from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.coaches.search import SearchCoach, space
from robocoach.agent_loop.guard import MOST_KEYS, guard
from robocoach.configs import load

POOR = {"train__learning_rate": 2e-4, "train__executed_steps": 16, "train__ema": 0.9999, "train__batch_size": 8}


def grown(name, length, *, seed=7, outcome=None, **base):
    """A campaign of that coach; `outcome(settings)` gives the stages of ten rollouts, drawn at random without it."""
    draw, coach = random.Random(seed), SearchCoach(name)
    tree = Tree(config_of(**base), seed=seed)
    tree.add([1] * 10)
    while len(tree.nodes) < length:
        proposal = asked(coach, tree.view())
        config = guard(proposal, tree.nodes, tree.base)
        stages = outcome(load.flatten(config.model_dump(), "config")) if outcome else None
        stages = stages or (draw.choice([[5] * 3 + [1] * 7, [0] * 10, [5] * 8 + [1] * 2]))
        tree.add(stages, proposal.change, parent=proposal.parent, start=proposal.start)
    return tree


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_a_coach_that_was_restarted_proposes_the_same(name):
    tree = grown(name, 6)
    assert asked(SearchCoach(name), tree.view()) == asked(SearchCoach(name), tree.view())


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_another_seed_brings_another_sample(name):
    changes = []
    for seed in (1, 2):
        tree = Tree(seed=seed)
        tree.add([1] * 10)
        changes.append(asked(SearchCoach(name), tree.view()).change)
    assert changes[0] != changes[1]


def test_tpe_goes_by_the_train_successes_and_random_does_not():
    def propose(name, good):
        tree = Tree()
        tree.add([1] * 10)
        for rate in (6e-4, 1e-3, 3e-3, 6e-3, 1e-2):
            won = (rate > 2e-3) == good
            tree.add([5] * 9 + [1] if won else [0] * 10, {"train.learning_rate": rate}, parent=0)
        return asked(SearchCoach(name), tree.view(best=1)).change

    assert propose("tpe", True) != propose("tpe", False)
    assert propose("random", True) == propose("random", False)


def test_tpe_learns_where_the_successes_are():
    def outcome(settings):
        return [5] * 9 + [1] if settings["train.executed_steps"] <= 4 else [1] * 10

    tree = grown("tpe", 30, outcome=outcome)
    late = [node.settings["train.executed_steps"] for node in tree.nodes[15:]]
    assert sum(value <= 4 for value in late) > len(late) / 2


def test_a_failed_attempt_counts_as_no_success():
    crashed, lost = Tree(), Tree()
    for tree, outcome in ((crashed, None), (lost, [0] * 10)):
        tree.add([1] * 10)
        for ema in (0.9, 0.99, 0.999):
            tree.add([5] * 6 + [0] * 4 if ema == 0.99 else outcome, {"train.ema": ema}, parent=0)
    one, other = (asked(SearchCoach("tpe"), tree.view(best=2)) for tree in (crashed, lost))
    assert one == other


def test_it_starts_from_the_best_and_changes_no_shape():
    tree = Tree()
    tree.add([1] * 10)
    tree.add([5] * 9 + [1], {"train.learning_rate": 1e-3})
    tree.add([0] * 10, {"train.learning_rate": 5e-3})
    proposal = asked(SearchCoach("tpe"), tree.view())
    assert (proposal.parent, proposal.start) == (1, "parent")
    assert not {"train.chunk_size", "train.capacity"} & proposal.change.keys()


def test_the_space_is_the_priors_widened_by_two_and_what_the_tree_holds():
    tree = Tree(config_of(**POOR))
    tree.add([1] * 10)
    found = {one.key: one for one in space(tree.view())}
    rate = priors()["train.learning_rate"]
    assert (found["train.learning_rate"].low, found["train.learning_rate"].high) == (2e-4, 2 * rate.high)
    assert found["train.executed_steps"].high == 16  # never more than the chunk
    assert found["train.ema"].high == 0.9999
    assert len(found) <= MOST_KEYS
    assert all(key.startswith("train.") for key in found)


def test_a_refused_sample_is_followed_by_another():
    tree = Tree()
    tree.add([1] * 10)
    coach = SearchCoach("random")
    first = asked(coach, tree.view())
    second = asked(coach, tree.view(), first)
    assert second.change != first.change
    assert second == asked(coach, tree.view(), first)


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_two_hundred_proposals_from_all_kinds_of_bases_pass(name):
    passed = 0
    for seed in range(20):
        poor = random.Random(seed)
        base = {
            "train__learning_rate": 10 ** poor.uniform(-6, 0),
            "train__ema": poor.choice([0, 0.5, 0.99999]),
            "train__warmup_steps": poor.choice([0, 100_000]),
            "train__clip_norm": 10 ** poor.uniform(-4, 3),
            "train__chunk_size": 20,
            "train__executed_steps": poor.randint(1, 20),
            "train__batch_size": poor.choice([1, 65_536]),
            "train__auxiliary_weight": poor.choice([0, 100]),
            "train__image_shift_px": poor.choice([0, 32]),
            "train__flow_samples": poor.choice([1, 64]),
            "train__policy": poor.choice(["pi05_nano", "pi05"]),
        }
        tree = grown(name, 11, seed=seed, **base)  # each one went through `guard` and `apply`
        passed += sum(bool(node.change) for node in tree.nodes)
    assert passed == 200
