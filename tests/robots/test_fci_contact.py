"""Who answers at an address, each mishap in one line that says what to do."""

import socket
import struct
import threading

import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig
from robocoach.robots import fci
from robocoach.robots.franka import FrankaArm
from robocoach.robots.rig import open_rig
from robocoach.robots.twin import Twin


def one_line(caught: pytest.ExceptionInfo) -> str:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


def test_nobody_there_is_a_refused_connection():
    with pytest.raises(UserError) as caught:
        FrankaArm("127.201.7.9", realtime=False)
    assert "refuses FCI connections" in one_line(caught) and "127.201.7.9" in str(caught.value)


def test_a_second_client_is_told_that_the_fci_is_busy(arm, twin):
    with pytest.raises(UserError) as caught:
        fci.probe(twin.host, timeout_s=0.5)
    assert "busy" in one_line(caught)


def test_the_twin_speaks_the_fr3_server_version(twin):
    assert fci.probe(twin.host) == fci.SERVER_VERSION["fr3"]


def test_another_server_version_names_both_versions():
    """A few bytes of the FCI's own protocol: what a Panda's controller answers to this client."""
    with socket.create_server(("127.201.7.10", fci.FCI_PORT)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(64)
                connection.sendall(struct.pack("<IIIHH4x", 0, 1, 20, 1, 5))

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(UserError) as caught:
            fci.probe("127.201.7.10")
        thread.join()
    assert "version 5" in one_line(caught) and "version 10" in str(caught.value)


def test_a_busy_fci_port_is_one_line():
    with socket.create_server(("127.201.7.11", fci.FCI_PORT)), pytest.raises(UserError) as caught:
        Twin("stack-cube", host="127.201.7.11")
    assert "busy" in one_line(caught) and "127.201.7.11" in str(caught.value)


def test_a_panda_is_refused_with_the_wheel_and_version_it_needs():
    with pytest.raises(UserError) as caught, open_rig(DeployConfig(robot="panda", host="127.201.7.12"), "stack-cube"):
        pass
    assert "wheel" in one_line(caught) and "version 5" in str(caught.value)


def test_the_installed_wheel_tells_the_version_it_is_built_for():
    assert fci.client_server_version() == fci.SERVER_VERSION["fr3"]


def test_with_the_pandas_wheel_a_panda_passes_and_an_fr3_does_not(monkeypatch):
    monkeypatch.setattr(fci, "client_server_version", lambda: fci.SERVER_VERSION["panda"])
    fci.check_model("panda")
    with pytest.raises(UserError) as caught:
        fci.check_model("fr3")
    assert "version 10" in one_line(caught) and "built for version 5" in str(caught.value)


@pytest.mark.parametrize("settings", [{"host": "127.201.7.13"}, {"dry_run": True}, {}])
def test_an_fr3_is_opened_for_a_dry_run_only(settings):
    with pytest.raises(UserError) as caught, open_rig(DeployConfig(robot="fr3", **settings), "stack-cube"):
        pass
    assert "--dry-run" in one_line(caught)
