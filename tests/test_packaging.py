"""The package is what the disk holds, under one name, and `datasets` stays Hugging Face's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("agent_loop", "configs", "datasets", "pipelines", "policies", "robots", "sim")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(code, cwd=ROOT):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_datasets_has_no_init_file():
    assert not (ROOT / "datasets" / "__init__.py").exists()


def test_bare_datasets_is_hugging_faces_even_from_the_repository_root():
    assert "site-packages" in run("import datasets; print(datasets.__file__)")


def test_every_room_imports_under_the_one_name():
    names = [f"robocoach.{room}" for room in ROOMS]
    assert run(f"import importlib\nfor name in {names}: importlib.import_module(name)\nprint('fine')") == "fine"


def test_the_package_list_equals_the_disk():
    on_disk = {
        f"robocoach.{'.'.join(path.parent.relative_to(ROOT).parts)}"
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    } | {"robocoach.datasets"}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == on_disk


def test_every_module_lies_in_a_listed_package():
    listed = {name.removeprefix("robocoach.").replace(".", "/") for name in PROJECT["tool"]["setuptools"]["packages"]}
    strays = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if str(path.parent.relative_to(ROOT)) not in listed
    }
    assert strays == set()


def test_no_test_folder_is_a_package_and_no_test_name_comes_twice():
    assert not list((ROOT / "tests").rglob("__init__.py"))
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_the_type_checkers_links_lead_to_the_rooms():
    links = {path.name: path.resolve() for path in (ROOT / ".types" / "robocoach").iterdir()}
    assert links == {room: ROOT / room for room in ROOMS}


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_locks_are_plain_pins_without_addresses(lock):
    lines = (ROOT / lock).read_text().splitlines()
    assert len(lines) > 5
    for line in lines:
        name, _, version = line.partition("==")
        assert name and version and not set(line) & set(" :/@;#"), line


def test_one_opencv_is_pinned_and_installed():
    import cv2

    pins = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("opencv")]
    assert [pin.partition("==")[0] for pin in pins] == ["opencv-python-headless"]
    assert pins[0].partition("==")[2].startswith(cv2.__version__)


def test_the_pins_that_the_issue_names_stand_in_the_lock():
    lock = set((ROOT / "requirements.lock").read_text().splitlines())
    wanted = {"torch==2.11.0", "lerobot==0.6.1", "genesis-world==1.4.5", "franky-control==2.0.0", "franky-sim==1.0.4"}
    assert wanted <= lock
    assert all(any(line.startswith(f"{name}==") for line in lock) for name in ("pyrealsense2", "accelerate", "wandb"))


def working_tree():
    """Files that git tracks or would track, as they are now."""
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def test_a_wheel_holds_every_module_and_data_file_and_answers(tmp_path):
    copy = tmp_path / "copy"
    for name in working_tree():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    with zipfile.ZipFile(copy / "dist" / run(build, copy).splitlines()[-1]) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    kinds = (".py", ".yaml", ".html")
    wanted = {f"robocoach/{name}" for name in working_tree() if name.startswith(ROOMS) and name.endswith(kinds)}
    assert len(wanted) > 40 and wanted <= names
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); sys.meta_path[:] = "
        "[finder for finder in sys.meta_path if 'editable' not in str(finder).lower()]\n"
        "from robocoach.pipelines import cli, report; from robocoach.configs import load\n"
        "assert cli.__file__.startswith(sys.path[0]), cli.__file__\n"
        "assert report.TEMPLATE.is_file() and load.profile_names() == ['cpu', 'gpu']\n"
        "print(cli.main(['--help']))"
    )
    assert run(code, tmp_path).splitlines()[-1] == "0"
