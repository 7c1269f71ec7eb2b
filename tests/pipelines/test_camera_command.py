"""`pipeline camera` on recorded pictures: the page, the lines, and what is written at the end."""

import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from PIL import Image

from robocoach.configs.errors import UserError
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.pipelines import camera
from robocoach.pipelines.camera_server import serving

HAND = (slice(160, 210), slice(20, 80))


def start(light: int, shift: int = 0) -> np.ndarray:
    """A table with a hand that stands still in the corner of the picture."""
    image = np.full((224, 224, 3), light, np.uint8)
    rows, columns = HAND
    image[rows, columns.start + shift : columns.stop + shift] = 30
    image[170:200, 140 + shift : 200 + shift] = 40
    return image


def journal(folder, images) -> Journal:
    made = Journal(folder)
    states = np.full((2, 8), 0.08, np.float32)
    for number, image in enumerate(images):
        pair = np.stack([image, image])
        made.add(number, Episode(pair, states, states, np.zeros(2, np.int64), None, "stack", number, True))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    lights = (180, 190, 200, 185, 195, 205, 188)
    return journal(tmp_path_factory.mktemp("camera") / "data", [start(light) for light in lights]).folder


def look(data, replay, out, *more: str) -> dict:
    arguments = ["--replay", str(replay), "--data", str(data), "--seconds", "1.6", "--port", "0", "--out", str(out)]
    assert camera.main([*arguments, *more]) == 0
    return json.loads((out / "camera.json").read_text())


def test_the_datas_own_picture_looks_like_the_data(data, tmp_path, capsys):
    found = look(data, data, tmp_path / "out", "--episode", "2")
    assert found["light"]["as_in_the_data"] and not found["mount"]["moved"]
    assert "light and colours as in the data; mount as in the data" in capsys.readouterr().out
    assert np.asarray(Image.open(tmp_path / "out" / "camera.png")).shape[0] > 448


def test_a_mount_that_has_moved_and_a_lamp_that_is_off_are_told(data, tmp_path, capsys):
    moved = journal(tmp_path / "moved", [start(90, shift=12)])
    found = look(data, moved.folder, tmp_path / "out")
    assert found["mount"]["moved"] and found["mount"]["right_px"] == pytest.approx(12, abs=1)
    assert "darker than the data" in found["light"]["words"]
    assert "the mount has moved" in capsys.readouterr().out


def test_the_page_shows_pictures_and_state():
    picture = start(200)
    with serving(0, lambda: {"live": picture}, lambda: {"views": ["live"], "frames": 3}) as address:
        assert b"Wrist camera" in urllib.request.urlopen(address).read()
        assert json.load(urllib.request.urlopen(f"{address}state.json"))["frames"] == 3
        assert urllib.request.urlopen(f"{address}live.jpg?7").read()[:2] == b"\xff\xd8"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}other.jpg")


def test_a_port_that_is_taken_is_one_line():
    with serving(0, dict, dict) as address:
        port = address.rsplit(":", 1)[1].strip("/")
        with pytest.raises(UserError, match="cannot be used"), serving(int(port), dict, dict):
            pass


def test_the_page_is_reached_while_the_camera_runs(data, tmp_path, capsys):
    job = threading.Thread(target=look, args=(data, data, tmp_path / "out"), daemon=True)
    job.start()
    deadline, address = time.monotonic() + 20, ""
    while not address and time.monotonic() < deadline:
        time.sleep(0.1)
        address = next((w for w in capsys.readouterr().out.split() if w.startswith("http://")), "")
    state = json.load(urllib.request.urlopen(f"{address}state.json"))
    assert state["views"] == ["live", "data", "blend", "edges"] and state["frames"] >= 1
    assert urllib.request.urlopen(f"{address}edges.jpg").read()[:2] == b"\xff\xd8"
    job.join(timeout=20)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seconds", "soon"],
        ["--port", "70000"],
        ["--replay", "nowhere.mp4"],
        ["--data", "nowhere"],
        ["--checkpoint", "nowhere"],
        ["--robot", "twin", "--exposure-us", "-3"],
    ],
)
def test_bad_input_is_one_line(arguments):
    with pytest.raises(UserError) as caught:
        camera.main(arguments)
    assert "\n" not in str(caught.value)
