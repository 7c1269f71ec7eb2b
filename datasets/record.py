"""From the journal to a LeRobotDataset v3: one folder that LeRobot opens, with the data contract inside.

The videos were encoded when the episodes were committed; here they are only joined, through LeRobot's own
`concatenate_video_files`, and metadata goes through LeRobot's `LeRobotDatasetMetadata`. The dataset is built in a
hidden folder and renamed when it is whole. The same journal gives the same bytes, so `dataset_digest` of the result
names its content.

    <root>/contract.json                 meaning and provenance (`contract.py`)
    <root>/meta/robocoach.json           what the caller adds: task, stage names, versions
    <root>/meta/episodes                 beside LeRobot's columns: `seed`, `success`
    <root>/data                          beside LeRobot's columns: `stage` and, from simulation, `privileged`
    <root>/meta/stats.json               true quantiles over all frames (LeRobot would average those of the episodes)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import (
    ACTION_KEY,
    ACTION_NAMES,
    FPS,
    IMAGE_KEY,
    IMAGE_SIZE,
    STATE_KEY,
    STATE_NAMES,
    Contract,
)
from robocoach.datasets.journal import Journal, Record

if TYPE_CHECKING:
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata

STAGE_KEY = "stage"
PRIVILEGED_KEY = "privileged"
EXTRA_FILE = "meta/robocoach.json"
VIDEO_FILE_MB = 200
DATA_FILE_FRAMES = 500_000


@dataclass(frozen=True)
class DatasetInfo:
    """What was assembled."""

    root: Path
    episodes: int
    frames: int
    successes: int
    instructions: tuple[str, ...]
    digest: str


def assemble(
    journal: Journal,
    root: Path,
    contract: Contract,
    extra_meta: Mapping[str, Any] | None = None,
    *,
    indices: Iterable[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DatasetInfo:
    """Assembles the journal's episodes, ascending, into `root`; what lay there before is replaced at the end.

    `indices` chooses episodes (default: all finished ones), `progress(done, total)` is called per episode. Episodes
    are numbered anew from 0. Raises UserError when there is no episode, when one cannot be read, and when the disk
    is full.
    """
    chosen = sorted(journal.done() if indices is None else set(indices))
    if not chosen:
        raise UserError(
            f"{journal.folder} has no finished episode, so there is no dataset to make; generate some first"
        )
    import av

    root = Path(root)
    building = root.with_name(f".{root.name}.assembling")
    try:
        shutil.rmtree(building, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        info = _build(journal, chosen, building, contract, extra_meta or {}, progress)
        _replace(building, root)
    except (OSError, av.FFmpegError) as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write the dataset {root} ({reason}); make room, then run the same line again"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return DatasetInfo(root=root, **info, digest=dataset_digest(root))


def dataset_digest(root: Path) -> str:
    """SHA-256 over the names and contents of all files of a dataset, first 16 hex digits.

    Hidden files and folders are left out. Raises UserError when there is nothing to hash.
    """
    root = Path(root)
    files = sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
    if not files:
        raise UserError(f"{root} is no dataset: it is missing or empty; name the folder that holds meta/ and data/")
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()[:16]


def features(privileged_size: int | None) -> dict[str, dict[str, Any]]:
    """LeRobot's description of every key, without the ones that LeRobot adds itself."""
    described: dict[str, dict[str, Any]] = {
        IMAGE_KEY: {
            "dtype": "video",
            "shape": (IMAGE_SIZE, IMAGE_SIZE, 3),
            "names": ["height", "width", "channels"],
        },
        STATE_KEY: {"dtype": "float32", "shape": (len(STATE_NAMES),), "names": list(STATE_NAMES)},
        ACTION_KEY: {"dtype": "float32", "shape": (len(ACTION_NAMES),), "names": list(ACTION_NAMES)},
        STAGE_KEY: {"dtype": "int64", "shape": (1,), "names": None},
    }
    if privileged_size is not None:
        described[PRIVILEGED_KEY] = {"dtype": "float32", "shape": (privileged_size,), "names": None}
    return described


def _build(
    journal: Journal,
    chosen: list[int],
    root: Path,
    contract: Contract,
    extra_meta: Mapping[str, Any],
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    import av
    from lerobot.configs import RGBEncoderConfig
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata
    from lerobot.datasets.io_utils import write_info

    av.logging.set_libav_level(av.logging.ERROR)
    size = _privileged_size(journal.read(chosen[0]))
    meta = LeRobotDatasetMetadata.create(
        repo_id=f"local/{root.name.removeprefix('.').removesuffix('.assembling')}",
        fps=FPS,
        features=features(size),
        robot_type=contract.provenance.robot,
        root=root,
        video_files_size_in_mb=VIDEO_FILE_MB,
    )
    places = _join_videos([journal.read(index).video for index in chosen], root, meta)
    meta.update_video_info(IMAGE_KEY, video_encoder=RGBEncoderConfig(vcodec="h264", crf=18, preset="ultrafast", g=5))
    write_info(meta.info, root)

    numbers: dict[str, list[np.ndarray]] = {}
    successes = 0
    instructions: dict[str, None] = {}
    with _DataFiles(meta, root) as data:
        for number, index in enumerate(chosen):
            record = journal.read(index)
            if _privileged_size(record) != size:
                raise ValueError(f"episode {index}: expected {size} privileged values, got {_privileged_size(record)}")
            columns = _columns(record)
            meta.save_episode_tasks([record.task])
            place = data.add(number, columns, meta.get_task_index(record.task))
            meta.save_episode(
                episode_index=number,
                episode_length=len(record.states),
                episode_tasks=[record.task],
                episode_stats=_episode_statistics(record, columns),
                episode_metadata={**place, **places[number], "seed": record.seed, "success": record.success},
            )
            successes += record.success
            instructions[record.task] = None
            for key, values in columns.items():
                numbers.setdefault(key, []).append(values)
            if progress is not None:
                progress(number + 1, len(chosen))
    meta.finalize()

    _write_statistics({key: np.concatenate(values) for key, values in numbers.items()}, meta.stats, root)
    contract.save(root)
    (root / EXTRA_FILE).write_text(json.dumps(dict(extra_meta), indent=2, sort_keys=True) + "\n")
    return {
        "episodes": len(chosen),
        "frames": meta.total_frames,
        "successes": successes,
        "instructions": tuple(instructions),
    }


def _privileged_size(record: Record) -> int | None:
    return None if record.privileged is None else record.privileged.shape[1]


def _columns(record: Record) -> dict[str, np.ndarray]:
    columns = {STATE_KEY: record.states, ACTION_KEY: record.actions, STAGE_KEY: record.stages}
    if record.privileged is not None:
        columns[PRIVILEGED_KEY] = record.privileged
    return columns


def _join_videos(videos: list[Path], root: Path, meta: LeRobotDatasetMetadata) -> list[dict[str, Any]]:
    """Joins the episodes' videos into files of bounded size; returns where each episode lies, in order."""
    from lerobot.datasets.utils import update_chunk_file_indices
    from lerobot.datasets.video_utils import concatenate_video_files

    groups: list[list[Path]] = [[]]
    size = 0
    for path in videos:
        size += path.stat().st_size
        if groups[-1] and size > VIDEO_FILE_MB * 1024**2:
            groups.append([])
            size = path.stat().st_size
        groups[-1].append(path)

    places = []
    chunk, file = 0, 0
    video_path = meta.video_path
    assert video_path is not None
    for group in groups:
        lengths = [_frame_count(path) for path in group]
        joined = root / video_path.format(video_key=IMAGE_KEY, chunk_index=chunk, file_index=file)
        concatenate_video_files(list(group), joined)
        joined.chmod(0o644)
        _check_times(joined, sum(lengths))
        first = 0
        for length in lengths:
            places.append(
                {
                    f"videos/{IMAGE_KEY}/chunk_index": chunk,
                    f"videos/{IMAGE_KEY}/file_index": file,
                    f"videos/{IMAGE_KEY}/from_timestamp": first / FPS,
                    f"videos/{IMAGE_KEY}/to_timestamp": (first + length) / FPS,
                }
            )
            first += length
        chunk, file = update_chunk_file_indices(chunk, file, meta.chunks_size)
    return places


def _frame_count(path: Path) -> int:
    import av

    container = av.open(str(path))
    try:
        return container.streams.video[0].frames
    finally:
        container.close()


def _check_times(path: Path, frames: int) -> None:
    """A joined file must show frame k at k / FPS exactly, or LeRobot would hand out a neighbour."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        times = [packet.pts * stream.time_base for packet in container.demux(stream) if packet.pts is not None]
    wrong = [k for k, time in enumerate(times) if time * FPS != k]
    if wrong or len(times) != frames:
        raise RuntimeError(f"{path}: expected {frames} frames at {FPS} fps, got {len(times)}, {len(wrong)} out of time")


class _DataFiles:
    """The parquet files of the frames, one row group an episode, as LeRobot writes them."""

    def __init__(self, meta: LeRobotDatasetMetadata, root: Path) -> None:
        from lerobot.datasets.feature_utils import get_hf_features_from_features

        self._meta, self._root = meta, root
        self._schema = get_hf_features_from_features(meta.features).arrow_schema
        self._writer: Any = None
        self._chunk = self._file = 0
        self._rows_in_file = self._rows = 0

    def __enter__(self) -> _DataFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def add(self, number: int, columns: Mapping[str, np.ndarray], task_index: int | None) -> dict[str, int]:
        """Writes one episode and returns where it lies."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from lerobot.datasets.utils import update_chunk_file_indices

        length = len(columns[STATE_KEY])
        if self._rows_in_file and self._rows_in_file + length > DATA_FILE_FRAMES:
            self._close()
            self._chunk, self._file = update_chunk_file_indices(self._chunk, self._file, self._meta.chunks_size)
        if self._writer is None:
            path = self._root / self._meta.data_path.format(chunk_index=self._chunk, file_index=self._file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, schema=self._schema, compression="snappy", use_dictionary=True)
            self._rows_in_file = 0

        ticks = np.arange(length)
        values = {
            **columns,
            "timestamp": (ticks / FPS).astype(np.float32),
            "frame_index": ticks,
            "episode_index": np.full(length, number),
            "index": ticks + self._rows,
            "task_index": np.full(length, task_index),
        }
        arrays = [_arrow(values[field.name], field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows_in_file += length
        self._rows += length
        return {"data/chunk_index": self._chunk, "data/file_index": self._file}

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _arrow(values: np.ndarray, kind: Any) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values, type=kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), type=kind.value_type), type=kind)


def _episode_statistics(record: Record, columns: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    numbers = {key: _statistics(values.reshape(len(values), -1).astype(np.float64)) for key, values in columns.items()}
    pixels = {
        name: np.array(values, dtype=np.int64 if name == "count" else np.float64)
        for name, values in record.pixels.items()
    }
    images = {name: values if name == "count" else values.reshape(3, 1, 1) for name, values in pixels.items()}
    return {IMAGE_KEY: images, **numbers}


def _statistics(rows: np.ndarray) -> dict[str, np.ndarray]:
    quantiles = np.quantile(rows, (0.01, 0.1, 0.5, 0.9, 0.99), axis=0)
    return {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        "count": np.array([len(rows)]),
        **dict(zip(("q01", "q10", "q50", "q90", "q99"), quantiles, strict=True)),
    }


def _write_statistics(
    numbers: Mapping[str, np.ndarray], merged: Mapping[str, Mapping[str, np.ndarray]] | None, root: Path
) -> None:
    """Replaces LeRobot's merged statistics of the numbers by the true ones; those of the pixels stay merged."""
    from lerobot.datasets.io_utils import write_stats

    assert merged is not None
    true = {key: _statistics(values.reshape(len(values), -1).astype(np.float64)) for key, values in numbers.items()}
    images = {name: merged[IMAGE_KEY][name] for name in sorted(merged[IMAGE_KEY])}
    write_stats({IMAGE_KEY: images, **true}, root)


def _replace(building: Path, root: Path) -> None:
    """Flushes a finished folder to the disk and puts it in the place of the old one."""
    for path in (*building.rglob("*"), building):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    old = root.with_name(f".{root.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if root.exists():
        root.rename(old)
    building.rename(root)
    shutil.rmtree(old, ignore_errors=True)
