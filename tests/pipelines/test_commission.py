"""The first day of an arm, gone through on the twin; and the arms that may not move yet."""

import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig
from robocoach.pipelines import commission
from robocoach.robots import approval

APPROVAL = approval.Approval(
    serial="295341-1325480",
    robot="fr3",
    host="172.16.0.2",
    server_version=10,
    client="franky-control 2.0.0",
    operator="Ada",
    passed_at="2026-11-30T12:00:00+00:00",
    checks=(approval.Check(name="home", passed=True, seen="arrived within 0.1 mrad"),),
)
ARM = DeployConfig(robot="fr3", host="172.16.0.2", serial="295341-1325480")


@pytest.fixture(autouse=True)
def own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_the_twin_passes_every_check(capsys):
    assert commission.main(["--robot", "twin", "--yes"]) == 0
    shown = capsys.readouterr().out
    for name in ("camera", "dry run", "first slow motion", "stop in motion", "hand motion", "home"):
        assert f"ok   {name}" in shown
    assert "FAIL" not in shown


def test_an_arm_moves_once_it_was_commissioned():
    with pytest.raises(UserError, match="never commissioned"):
        approval.require(ARM)
    approval.save(APPROVAL)
    assert approval.require(ARM) == APPROVAL


@pytest.mark.parametrize("changed", [{"host": "172.16.0.3"}, {"robot": "panda"}, {"serial": ""}, {"serial": "other"}])
def test_an_approval_holds_for_that_arm_at_that_address_only(changed):
    approval.save(APPROVAL)
    with pytest.raises(UserError, match="pipeline commission"):
        approval.require(ARM.model_copy(update=changed))


def test_a_broken_approval_is_no_approval():
    approval.save(APPROVAL).write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        approval.require(ARM)


@pytest.mark.parametrize("serial", ["../../etc/passwd", "a b", "x" * 65])
def test_a_serial_number_is_not_a_path(serial):
    with pytest.raises(UserError, match="serial number"):
        approval.path(serial)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--robot", "fr3"],
        ["--robot", "fr3", "--host", "172.16.0.2"],
        ["--robot", "fr3", "--host", "172.16.0.2", "--serial", "1", "--yes"],
    ],
)
def test_an_arm_needs_an_address_a_serial_number_and_a_person(arguments):
    with pytest.raises(UserError):
        commission.main(arguments)


def test_the_board_is_written_with_its_size(tmp_path, capsys):
    assert commission.main(["--print-board", str(tmp_path / "board.png")]) == 0
    assert "170 x 238 mm" in capsys.readouterr().out
