from pathlib import Path

import pytest
from made_attempts import STAGES, node, record, write_attempt

from robocoach.agent_loop import retention
from robocoach.agent_loop.retention import DOOMED, DiskFull, keep_below, plan, size_of, spare

BIG = 1_000
SAFE = ("json", "jsonl", "txt", "md", "yaml", "db", "png", "npz")
NEEDED = frozenset({1})
"""Attempt 1 is best and incumbent; 0 is safe by itself."""


def fill(path: Path, size: int = BIG) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


@pytest.fixture
def campaign(tmp_path):
    """Five attempts: 0 the first, 1 needed, 2 has the child 4, which is in training; 3 is spare, the best of them."""
    stages = {0: [0, 0, 0], 1: [5, 5, 5], 2: [2, 2, 2], 3: [5, 2, 2], 4: [1, 1, 1]}
    parents = {0: None, 1: 0, 2: 1, 3: 2, 4: 2}
    nodes = []
    for number, reached in stages.items():
        folder = tmp_path / "attempts" / f"{number:04d}"
        write_attempt(folder, [record(seed, stage) for seed, stage in enumerate(reached)])
        fill(folder / "training_state.pt")
        fill(folder / "preflight" / "training_state.pt")
        fill(folder / "preflight" / "log.txt", 10)
        for name in ("last", "best"):
            fill(folder / "checkpoints" / name / "model.safetensors")
        for seed in range(3):
            for kind in ("side", "wrist"):
                fill(folder / "rollouts" / "train" / f"{seed}-{kind}.mp4")
            fill(folder / "rollouts" / "train" / f"{seed}.npz", 10)
            fill(folder / "rollouts" / "train" / f"{seed}-sheet.png", 10)
        (folder / "feedback.md").write_text("# report\n")
        (folder / "config.yaml").write_text("seed: 0\n")
        nodes.append(node(folder, number, parents[number], state="training" if number == 4 else "done"))
    (tmp_path / "campaign.db").write_bytes(b"store")
    return tmp_path, nodes


def everything(campaign, needed=NEEDED):
    """What goes when nothing may stay that can go."""
    folder, nodes = campaign
    try:
        return keep_below(folder, 0, nodes, needed, STAGES)
    except DiskFull as full:
        return list(full.removed)


def test_below_its_cap_nothing_goes(campaign):
    folder, nodes = campaign
    assert keep_below(folder, size_of(folder), nodes, NEEDED, STAGES) == []


def test_no_more_goes_than_has_to(campaign):
    folder, nodes = campaign
    assert keep_below(folder, size_of(folder) - 1, nodes, NEEDED, STAGES) == ["attempts/0000/training_state.pt"]
    assert not (folder / "attempts/0000/training_state.pt").exists()


def test_things_go_in_the_stated_order(campaign):
    folder, nodes = campaign
    nodes[4] = node(nodes[4].folder, 4, 2, state="done")
    removed = everything((folder, nodes), frozenset({1, 4}))
    spared = "attempts/0002/rollouts/train/1-wrist.mp4"  # stands for its three like failures
    ranks = {
        "training_state.pt": 0,
        "checkpoints/best": 1,
        "-side.mp4": 2,
        "2-wrist.mp4": 3,
        "0003/checkpoints/last": 4,
        "0002/checkpoints/last": 5,
    }
    found = [next((rank for part, rank in ranks.items() if part in path), None) for path in removed]
    told = [rank for rank in found if rank is not None]
    assert told == sorted(told) and set(told) == set(ranks.values())
    assert removed.index(spared) > removed.index("attempts/0002/checkpoints/last")


def test_the_worst_by_train_seeds_goes_first(campaign):
    _, nodes = campaign
    nodes[4] = node(nodes[4].folder, 4, 2, state="done")
    assert [one.number for one in spare(nodes, NEEDED)] == [4, 2, 3]


def test_what_an_open_attempt_grows_from_stays(campaign):
    everything(campaign)
    for number in (2, 4):
        assert (campaign[0] / f"attempts/{number:04d}/checkpoints/last/model.safetensors").is_file()
    assert (campaign[0] / "attempts/0004/training_state.pt").is_file()
    assert not (campaign[0] / "attempts/0003/checkpoints/last").exists()


def test_first_and_needed_attempts_keep_checkpoints_and_films(campaign):
    everything(campaign)
    for number in (0, 1):
        folder = campaign[0] / f"attempts/{number:04d}"
        assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["best", "last"]
        assert len(list(folder.rglob("*.mp4"))) == 6


def test_records_are_never_removed(campaign):
    folder, _ = campaign

    def records():
        return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix[1:] in SAFE)

    before = records()
    assert everything(campaign) and records() == before


def test_a_folder_that_cannot_be_kept_below_its_cap_is_refused_with_what_went(campaign):
    folder, nodes = campaign
    with pytest.raises(DiskFull, match=r"more than its cap of 0 GB.*raise campaign\.disk_gb") as found:
        keep_below(folder, 0, nodes, NEEDED, STAGES)
    assert "attempts/0003/checkpoints/last" in found.value.removed


def test_a_plan_touches_nothing_and_says_what_is_left(campaign):
    folder, nodes = campaign
    before = size_of(folder)
    planned = plan(folder, 0, nodes, NEEDED, STAGES)
    assert size_of(folder) == before == planned.size
    assert [str(path.relative_to(folder)) for path, _ in planned.removals] == everything(campaign)
    assert size_of(folder) == planned.left


def test_a_kill_between_rename_and_delete_is_cleaned_up(campaign, monkeypatch):
    folder, nodes = campaign
    cap = size_of(folder) - 1

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            keep_below(folder, cap, nodes, NEEDED, STAGES)
    assert not (folder / "attempts/0000/training_state.pt").exists()
    assert keep_below(folder, cap, nodes, NEEDED, STAGES) == []
    assert not list(folder.rglob(f"*{DOOMED}"))


def test_links_are_neither_counted_nor_removed(campaign, tmp_path_factory):
    folder, _ = campaign
    asset = tmp_path_factory.mktemp("asset")
    fill(asset / "weights", 10 * BIG)
    before = size_of(folder)
    best = folder / "attempts/0003/checkpoints/best"
    (best / "model.safetensors").unlink()
    best.rmdir()
    best.symlink_to(asset)
    (folder / "weights").symlink_to(asset / "weights")
    assert size_of(folder) == before - BIG
    everything(campaign)
    assert (asset / "weights").is_file() and best.is_symlink()


def test_an_attempt_whose_records_cannot_be_read_keeps_its_films_to_the_end(campaign):
    folder, _ = campaign
    (folder / "attempts/0003/rollouts/train/0.json").write_text("{")
    removed = everything(campaign)
    assert removed.index("attempts/0003/rollouts/train/1-wrist.mp4") > removed.index("attempts/0003/checkpoints/last")


@pytest.mark.parametrize("linked", ["checkpoints", "rollouts/train"])
def test_what_lies_behind_a_linked_folder_is_not_removed(campaign, tmp_path_factory, linked):
    folder, _ = campaign
    own, asset = folder / "attempts/0003" / linked, tmp_path_factory.mktemp("asset") / "there"
    own.rename(asset)
    own.symlink_to(asset)
    before = sorted(asset.rglob("*"))
    removed = everything(campaign)
    assert sorted(asset.rglob("*")) == before
    assert not [path for path in removed if path.startswith(f"attempts/0003/{linked}/")]


def test_a_link_inside_what_is_removed_goes_and_its_target_stays(campaign, tmp_path_factory):
    folder, _ = campaign
    asset = tmp_path_factory.mktemp("asset") / "weights"
    fill(asset)
    (folder / "attempts/0003/checkpoints/best/base").symlink_to(asset.parent)
    assert "attempts/0003/checkpoints/best" in everything(campaign)
    assert asset.is_file() and not (folder / "attempts/0003/checkpoints/best").exists()


def test_a_kill_at_any_step_leaves_nothing_half_under_its_own_name(campaign, monkeypatch):
    """Killed in every removal in turn, after its rename and the first file of its delete; then run to the end."""
    folder, nodes = campaign
    whole = {path: size_of(path) for path, _ in plan(folder, 0, nodes, NEEDED, STAGES).removals}
    delete = retention._delete

    def killed(path):
        files = [one for one in sorted(path.rglob("*")) if one.is_file()]
        (files[0] if files else path).unlink()
        raise KeyboardInterrupt

    for _ in whole:
        left = set(folder.rglob(f"*{DOOMED}"))
        with monkeypatch.context() as patch:
            patch.setattr(retention, "_delete", lambda path, left=left: delete(path) if path in left else killed(path))
            with pytest.raises(KeyboardInterrupt):
                keep_below(folder, 0, nodes, NEEDED, STAGES)
        assert all(size_of(path) == size for path, size in whole.items() if path.exists())
    assert everything(campaign) == []
    assert not any(path.exists() for path in whole) and not list(folder.rglob(f"*{DOOMED}"))


def test_the_same_folder_gives_the_same_plan_whatever_the_order_of_its_files(campaign, monkeypatch):
    folder, nodes = campaign
    first = plan(folder, 0, nodes, NEEDED, STAGES)
    found = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(sorted(found(self, pattern), reverse=True)))
    assert plan(folder, 0, nodes, NEEDED, STAGES) == first


def test_after_a_kill_the_rest_goes_in_the_order_of_an_unbroken_run(campaign):
    folder, nodes = campaign
    planned = [str(path.relative_to(folder)) for path, _ in plan(folder, 0, nodes, NEEDED, STAGES).removals]
    part = keep_below(folder, size_of(folder) - 5 * BIG, nodes, NEEDED, STAGES)
    assert part == planned[: len(part)] and part
    assert everything(campaign) == planned[len(part) :]
