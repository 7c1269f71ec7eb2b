"""The contract: what it refuses, what it shows, what may differ without asking."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import Contract, GripperRule, Meaning, Provenance, check, compatible_pairs

RULE = GripperRule()


def changed(contract: Contract, **fields) -> Contract:
    return contract.model_copy(update={"provenance": contract.provenance.model_copy(update=fields)})


def test_equal_contracts_have_nothing_to_say(sim_contract):
    assert check(sim_contract, sim_contract, "the dataset") == []


def test_another_meaning_is_refused_and_the_difference_is_named(sim_contract):
    other = sim_contract.model_copy(update={"meaning": Meaning(fps=15)})
    with pytest.raises(UserError, match="fps: expected 10, the dataset has 15"):
        check(sim_contract, other, "the dataset", accept=frozenset(Provenance.model_fields))


def test_another_gripper_rule_is_another_meaning(sim_contract):
    other = sim_contract.model_copy(update={"meaning": Meaning(gripper=GripperRule(close_below_m=0.02))})
    with pytest.raises(UserError, match=r"gripper\.close_below_m: expected 0\.03, it has 0\.02"):
        check(sim_contract, other, "it")


def test_another_camera_has_to_be_accepted_by_name(sim_contract):
    other = changed(sim_contract, camera="zed", robot="panda")
    with pytest.raises(UserError, match=r"add --accept robot,camera$"):
        check(sim_contract, other, "the dataset")
    with pytest.raises(UserError, match=r"add --accept robot$"):
        check(sim_contract, other, "the dataset", accept=frozenset({"camera"}))


def test_a_measured_field_of_view_may_differ_by_a_degree(sim_contract):
    assert check(changed(sim_contract, fov_deg=43.4), sim_contract, "the dataset") == [
        "fov_deg: 43.4 here, 42.5 there (within 1 degree)"
    ]
    with pytest.raises(UserError, match=r"add --accept fov_deg$"):
        check(changed(sim_contract, fov_deg=43.6), sim_contract, "the dataset")


def test_an_accepted_difference_is_still_shown(sim_contract):
    other = changed(sim_contract, camera="zed")
    assert check(sim_contract, other, "the dataset", accept=frozenset({"camera"})) == [
        "camera: 'realsense-d435-colour' here, 'zed' there (accepted)"
    ]


def test_accepting_a_field_that_does_not_exist_is_refused_with_the_list(sim_contract):
    with pytest.raises(UserError, match="--accept lens: choose from robot, camera"):
        check(sim_contract, sim_contract, "the dataset", accept=frozenset({"lens"}))


def test_simulated_and_real_data_meet_without_asking_either_way_round(sim_contract):
    real = changed(sim_contract, source="real", simulator_version=None)
    for ours, theirs in ((sim_contract, real), (real, sim_contract)):
        assert any("meant to be mixed" in line for line in check(ours, theirs, "the dataset"))


def test_a_source_that_nobody_declared_has_to_be_accepted(sim_contract):
    with pytest.raises(UserError, match="--accept source"):
        check(changed(sim_contract, source="real"), changed(sim_contract, source="youtube"), "the dataset")


def test_every_declared_pair_names_a_field_of_the_provenance():
    assert {pair.field for pair in compatible_pairs()} <= set(Provenance.model_fields)


def test_a_saved_contract_reads_back_equal(sim_contract, tmp_path):
    sim_contract.save(tmp_path)
    assert Contract.load(tmp_path) == sim_contract


def test_a_contract_edited_by_hand_is_detected(sim_contract, tmp_path):
    sim_contract.save(tmp_path)
    raw = json.loads((tmp_path / "contract.json").read_text())
    raw["meaning"]["fps"] = 15
    (tmp_path / "contract.json").write_text(json.dumps(raw))
    with pytest.raises(UserError, match="does not match its own hash"):
        Contract.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"meaning": 3}', '"contract"'])
def test_a_broken_contract_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "contract.json").write_text(text)
    with pytest.raises(UserError, match="is not a contract"):
        Contract.load(tmp_path)


def test_a_folder_without_a_contract_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no contract\.json"):
        Contract.load(tmp_path)


@given(st.lists(st.floats(0, 0.1), min_size=1, max_size=60), st.booleans())
def test_the_gripper_only_changes_its_mind_beyond_a_threshold(widths_m, closed):
    for width_m in widths_m:
        after = RULE.wants_closed(width_m, closed)
        if after and not closed:
            assert width_m < RULE.close_below_m
        if closed and not after:
            assert width_m > RULE.open_above_m
        closed = after


@given(st.floats(0, 0.1), st.booleans())
def test_the_gripper_rule_settles_at_once(width_m, closed):
    once = RULE.wants_closed(width_m, closed)
    assert RULE.wants_closed(width_m, once) == once


@given(st.floats(RULE.close_below_m, RULE.open_above_m), st.booleans())
def test_a_width_between_the_thresholds_keeps_the_decision(width_m, closed):
    assert RULE.wants_closed(width_m, closed) == closed
