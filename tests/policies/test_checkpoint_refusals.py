"""A checkpoint that is missing, broken, foreign or of another contract is refused in one line; nothing acts from it."""

from __future__ import annotations

import json

import pytest
import torch
from lerobot.policies.factory import get_policy_class
from safetensors.torch import load_file, save_file

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import Contract, Meaning
from robocoach.policies import synthetic
from robocoach.policies.checkpoint import load_policy, verify
from robocoach.policies.files import MANIFEST_FILE, write_manifest

WEIGHTS = "model.safetensors"


def _sign_again(folder):
    about = json.loads((folder / MANIFEST_FILE).read_text())
    del about["files"]
    (folder / MANIFEST_FILE).unlink()
    write_manifest(folder, about)


def _edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def _refusal(folder) -> str:
    with pytest.raises(UserError) as refusal:
        load_policy(folder)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_missing_folder(tmp_path):
    assert "there is no checkpoint" in _refusal(tmp_path / "nothing")


def test_a_folder_that_is_no_checkpoint_of_this_project(checkpoint):
    (checkpoint / MANIFEST_FILE).unlink()
    assert f"no {MANIFEST_FILE}" in _refusal(checkpoint)


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "contract.json", "policy_preprocessor.json"])
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    assert f"{name} is missing" in _refusal(checkpoint)


def test_weights_that_were_cut_off(checkpoint):
    whole = (checkpoint / WEIGHTS).read_bytes()
    (checkpoint / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    assert "corrupt or cut off" in _refusal(checkpoint)


def test_one_flipped_bit(checkpoint):
    data = bytearray((checkpoint / WEIGHTS).read_bytes())
    data[-1000] ^= 1
    (checkpoint / WEIGHTS).write_bytes(bytes(data))
    assert "corrupt or cut off" in _refusal(checkpoint)


def test_a_broken_manifest(checkpoint):
    (checkpoint / MANIFEST_FILE).write_text("{")
    assert "corrupt" in _refusal(checkpoint)


def test_another_contract(checkpoint):
    other = Contract(meaning=Meaning(fps=15), provenance=synthetic.CONTRACT.provenance)
    other.save(checkpoint)
    _sign_again(checkpoint)
    assert "fps: expected 10, it has 15" in _refusal(checkpoint)


def test_a_policy_of_a_foreign_type(checkpoint):
    _edit_config(checkpoint, type="act")
    _sign_again(checkpoint)
    assert "'act'" in _refusal(checkpoint)


def test_weights_of_another_size(checkpoint):
    _edit_config(checkpoint, expert_width=64)
    _sign_again(checkpoint)
    assert "belongs to another model" in _refusal(checkpoint)


def test_weights_with_a_name_too_few(checkpoint):
    state = load_file(checkpoint / WEIGHTS)
    del state["model.action_in_proj.weight"]
    save_file(state, checkpoint / WEIGHTS)
    _sign_again(checkpoint)
    assert "model.action_in_proj.weight" in _refusal(checkpoint)


def test_weights_that_are_not_finite(checkpoint):
    state = load_file(checkpoint / WEIGHTS)
    state["model.action_in_proj.weight"][0, 0] = torch.nan
    save_file(state, checkpoint / WEIGHTS)
    _sign_again(checkpoint)
    assert "not finite" in _refusal(checkpoint)


def test_a_gpu_that_is_not_there(checkpoint):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="no CUDA GPU"):
        load_policy(checkpoint, device="cuda")


@pytest.mark.parametrize("harm", ["missing", "cut", "folder"])
def test_lerobots_own_route_never_returns_random_weights(checkpoint, harm):
    weights = checkpoint / WEIGHTS
    if harm == "missing":
        weights.unlink()
    elif harm == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    folder = checkpoint / "nothing" if harm == "folder" else checkpoint
    with pytest.raises(UserError):
        get_policy_class("pi05_nano").from_pretrained(folder)


def test_a_whole_checkpoint_passes(checkpoint):
    assert verify(checkpoint)["policy"] == "pi05_nano"
