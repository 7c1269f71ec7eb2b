"""LeRobotDatasets v2.0 to v3.0 for the checks, read with pyarrow and PyAV alone, an episode at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.arms import JOINT_RANGE_RAD
from robocoach.datasets.check_findings import Fault, Finding
from robocoach.datasets.check_view import CONTRACT_SPAN_M, DatasetView, EpisodeView, layout
from robocoach.datasets.check_whole import BROKEN_CONTRACT, index_statistics
from robocoach.datasets.columns import to_numpy
from robocoach.datasets.contract import ACTION_KEY, CONTRACT_FILE, IMAGE_KEY, STATE_KEY, Contract
from robocoach.datasets.real_lerobot import VERSION, names_of
from robocoach.datasets.record import EXTRA_FILE, STAGE_KEY

BROKEN_EPISODE = Fault(
    "episode cannot be read", "the training stops here.", "take a fresh copy of the file, or leave the episode out"
)
OLD_FORMAT = Fault(
    "old LeRobot format",
    "LeRobot 0.4 and later read v3.0 only.",
    "convert a copy: python -m lerobot.scripts.convert_dataset_v21_to_v30",
)
COUNTS = Fault(
    "counts in the description do not fit the files",
    "the dataset was cut or joined by hand; a loader reads beyond the end or leaves frames out.",
    "write the description again from the files",
)
NUMBERING = Fault(
    "frames are not numbered in order",
    "loaders look frames up by these numbers and would mix episodes.",
    "write frame_index, episode_index and index anew",
)
NOT_EXAMINED = Fault("images not examined", "only one camera is looked at.", "nothing; look at them by eye")
NO_STATE = Fault("no states", "nothing but images can be checked.", "name the joints' column observation.state")
_WANTED = (STATE_KEY, ACTION_KEY, STAGE_KEY, "timestamp", "frame_index", "episode_index", "index", "task_index")
_SUCCESS = "next.success"


def open_lerobot(root: Path) -> DatasetView:
    """A LeRobotDataset. Raises UserError when its description cannot be read."""
    try:
        info = json.loads((root / "meta/info.json").read_text())
        features: Mapping[str, Mapping[str, Any]] = info["features"]
        fps, version = float(info["fps"]), str(info["codebase_version"])
        names = {key: tuple(names_of(features[key])) for key in (STATE_KEY, ACTION_KEY) if key in features}
        entries = list(_entries(root, version))
        tasks = _tasks(root)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise UserError(f"{root}/meta cannot be read ({reason}); take a fresh copy of the dataset") from error
    cameras = [key for key, feature in features.items() if feature.get("dtype") == "video"]
    camera = _wrist(cameras)
    contract, problems = _contract(root)
    problems += _described(info, entries, version)
    others = [key for key, feature in features.items() if feature.get("dtype") in ("video", "image") and key != camera]
    if others:
        problems.append(Finding(NOT_EXAMINED, "note", ", ".join(others)))
    if STATE_KEY not in names:
        problems.append(Finding(NO_STATE, "error", f"it has {', '.join(features)}"))
    robot = contract.provenance.robot if contract else str(info.get("robot_type") or "")
    arm = robot.partition("+")[0].lower()
    reader = _Reader(root, info, features, entries, tasks, camera, fps, version)
    return DatasetView(
        path=str(root),
        kind=f"LeRobotDataset {version}",
        state=layout(names.get(STATE_KEY, ())),
        action=layout(names[ACTION_KEY]) if ACTION_KEY in names else None,
        arm=arm if arm in JOINT_RANGE_RAD else None,
        count=len(entries),
        episodes=reader.episodes,
        gripper_span=CONTRACT_SPAN_M if contract else None,
        contract=contract,
        ours=contract is not None,
        needs_contract=True,
        declared_fps=fps,
        declared_robot=str(info.get("robot_type") or ""),
        stage_names=_stage_names(root),
        statistics=_statistics(root),
        camera=camera,
        problems=tuple(problems),
    )


def decode(path: Path, from_s: float = 0.0, to_s: float = np.inf) -> Iterator[np.ndarray]:
    """Yields the images of a video from one time to another (exclusive), uint8 (H, W, 3) RGB."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        rate, base = stream.average_rate, stream.time_base
        half = 0.5 / float(rate) if rate else 0.0
        if from_s > 0 and base is not None:
            container.seek(int(max(0.0, from_s - half) / base), stream=stream)
        for frame in container.decode(stream):
            at = frame.time
            if at is not None and at < from_s - half:
                continue
            if at is not None and at >= to_s - half:
                return
            yield frame.to_ndarray(format="rgb24")


class _Reader:
    """Reads episodes in order; keeps the parquet file that was read last, since many episodes share one."""

    def __init__(
        self,
        root: Path,
        info: Mapping[str, Any],
        features: Mapping[str, Mapping[str, Any]],
        entries: list[dict[str, Any]],
        tasks: Mapping[int, str],
        camera: str | None,
        fps: float,
        version: str,
    ) -> None:
        self._root, self._info, self._entries, self._tasks = root, info, entries, tasks
        self._camera, self._fps, self._old = camera, fps, not version.startswith("v3")
        self._wanted = [key for key in (*_WANTED, _SUCCESS) if key in features]
        self._size = features[STATE_KEY]["shape"][0] if STATE_KEY in features else 0
        video = features[camera].get("info") or {} if camera else {}
        self._image_hz = video.get("video.fps")

    def episodes(self) -> Iterator[EpisodeView]:
        """All episodes, in the order of the description."""
        held: tuple[Path, dict[str, np.ndarray]] | None = None
        for entry in self._entries:
            path = self._path("data_path", "data", entry)
            try:
                if held is None or held[0] != path:
                    held = (path, self._load(path))
                yield self._episode(entry, held[1])
            except (OSError, ValueError, KeyError, TypeError) as error:
                name = str(entry["episode_index"])
                reason = str(error).splitlines()[0] if str(error) else repr(error)
                broken = Finding(BROKEN_EPISODE, "error", f"{path.name}: {reason}", name)
                yield EpisodeView(name, self._fps, np.zeros((0, self._size)), problems=(broken,))

    def _load(self, path: Path) -> dict[str, np.ndarray]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path, columns=self._wanted)
        except pa.ArrowException as error:
            raise ValueError(str(error)) from error
        return {name: to_numpy(table.column(name)) for name in table.column_names}

    def _episode(self, entry: dict[str, Any], columns: dict[str, np.ndarray]) -> EpisodeView:
        number = int(entry["episode_index"])
        own = columns["episode_index"] == number
        rows = {key: values[own] for key, values in columns.items()}
        name = str(number)
        count = int(own.sum())
        problems = _numbered(entry, rows, count, name)
        if count == 0:
            raise ValueError("it holds no frame of this episode")
        tasks = entry.get("tasks")
        if isinstance(tasks, str):
            tasks = [tasks]
        task = tasks[0] if tasks else self._tasks.get(int(rows["task_index"][0])) if "task_index" in rows else None
        success = entry.get("success")
        if success is None and _SUCCESS in rows:
            success = bool(rows[_SUCCESS].any())
        stages = rows.get(STAGE_KEY)
        return EpisodeView(
            name=name,
            rate_hz=self._fps,
            states=_two_dimensional(rows.get(STATE_KEY), count),
            actions=_two_dimensional(rows[ACTION_KEY], count) if ACTION_KEY in rows else None,
            times_s=rows["timestamp"].astype(np.float64).ravel() if "timestamp" in rows else None,
            stages=None if stages is None else stages.ravel(),
            task=str(task or ""),
            success=None if success is None else bool(success),
            seed=entry.get("seed"),
            images=self._images(entry),
            image_hz=self._image_hz,
            problems=tuple(problems),
        )

    def _images(self, entry: dict[str, Any]) -> Any:
        if self._camera is None:
            return None
        path = self._path("video_path", f"videos/{self._camera}", entry)
        if self._old:
            return partial(decode, path)
        start, stop = (entry[f"videos/{self._camera}/{end}_timestamp"] for end in ("from", "to"))
        return partial(decode, path, float(start), float(stop))

    def _path(self, template: str, prefix: str, entry: dict[str, Any]) -> Path:
        number = int(entry["episode_index"])
        chunk_of = int(self._info.get("chunks_size") or 1000)
        return self._root / self._info[template].format(
            video_key=self._camera,
            chunk_index=entry.get(f"{prefix}/chunk_index", 0),
            file_index=entry.get(f"{prefix}/file_index", 0),
            episode_chunk=number // chunk_of,
            episode_index=number,
        )


def _two_dimensional(rows: np.ndarray | None, count: int) -> np.ndarray:
    return np.zeros((count, 0)) if rows is None else rows.reshape(count, -1)


def _numbered(entry: dict[str, Any], rows: dict[str, np.ndarray], count: int, name: str) -> list[Finding]:
    found = []
    if "length" in entry and int(entry["length"]) != count:
        found.append(Finding(COUNTS, "error", f"{entry['length']} frames described, {count} in the file", name))
    for key in ("frame_index", "index"):
        if key not in rows or not count:
            continue
        values = rows[key].ravel().astype(np.int64)
        first = 0 if key == "frame_index" else int(values[0])
        wrong = np.flatnonzero(values != first + np.arange(count))
        if len(wrong):
            what = f"{key} is {values[wrong[0]]} where {first + wrong[0]} is expected ({len(wrong)} frames)"
            found.append(Finding(NUMBERING, "error", what, name, int(wrong[0])))
    stored = entry.get("index_statistics")
    if stored and count and "index" in rows:
        number = int(entry["episode_index"])
        true = {"episode_index": (number, number), "index": (int(rows["index"].min()), int(rows["index"].max()))}
        found += index_statistics(stored, true, name)
    return found


def _entries(root: Path, version: str) -> Iterator[dict[str, Any]]:
    """What the description says of each episode; `index_statistics` where it keeps statistics of the numbering."""
    if version.startswith("v3"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            for path in sorted((root / "meta/episodes").glob("*/*.parquet")):
                table = pq.read_table(path)
                yield from table.select([key for key in table.column_names if not key.startswith("stats/")]).to_pylist()
        except pa.ArrowException as error:
            raise ValueError(str(error)) from error
        return
    statistics = {line["episode_index"]: line["stats"] for line in _lines(root / "meta/episodes_stats.jsonl")}
    for line in _lines(root / "meta/episodes.jsonl"):
        own = statistics.get(line["episode_index"], {})
        spans = {
            key: (float(np.ravel(own[key]["min"])[0]), float(np.ravel(own[key]["max"])[0]))
            for key in ("episode_index", "index")
            if key in own
        }
        yield {**line, "index_statistics": spans}


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _tasks(root: Path) -> dict[int, str]:
    parquet = root / "meta/tasks.parquet"
    if parquet.is_file():
        import pandas as pd

        table = pd.read_parquet(parquet)
        return {int(index): str(task) for task, index in table["task_index"].items()}
    return {int(line["task_index"]): str(line["task"]) for line in _lines(root / "meta/tasks.jsonl")}


def _wrist(cameras: list[str]) -> str | None:
    if IMAGE_KEY in cameras:
        return IMAGE_KEY
    near = [key for key in cameras if any(word in key.lower() for word in ("wrist", "hand", "gripper"))]
    return next(iter(near or cameras), None)


def _contract(root: Path) -> tuple[Contract | None, list[Finding]]:
    if not (root / CONTRACT_FILE).is_file():
        return None, []
    try:
        return Contract.load(root), []
    except UserError as error:
        return None, [Finding(BROKEN_CONTRACT, "error", str(error).partition(";")[0])]


def _described(info: Mapping[str, Any], entries: list[dict[str, Any]], version: str) -> list[Finding]:
    found = []
    if version != VERSION:
        found.append(Finding(OLD_FORMAT, "warning", f"it is {version}, expected {VERSION}"))
    frames = sum(int(entry.get("length", 0)) for entry in entries)
    for key, counted in (("total_episodes", len(entries)), ("total_frames", frames)):
        if key in info and int(info[key]) != counted:
            found.append(Finding(COUNTS, "error", f"{key} is {info[key]}, the episodes say {counted}"))
    return found


def _statistics(root: Path) -> dict[str, dict[str, np.ndarray]] | None:
    """The dataset's own statistics of states and actions; None when it keeps none (v2.1 keeps them by episode)."""
    path = root / "meta/stats.json"
    try:
        stored = json.loads(path.read_text())
        return {
            key: {name: np.asarray(value, dtype=np.float64) for name, value in stored[key].items()}
            for key in (STATE_KEY, ACTION_KEY)
            if key in stored
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _stage_names(root: Path) -> tuple[str, ...]:
    try:
        return tuple(str(name) for name in json.loads((root / EXTRA_FILE).read_text()).get("stages", ()))
    except (OSError, ValueError, AttributeError):
        return ()
