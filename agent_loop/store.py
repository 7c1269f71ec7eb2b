"""`campaign.db`: the tree of attempts, their scores and the events of a campaign, in SQLite (WAL).

Every write is one transaction, so a kill leaves the last committed state. What lies in an attempt's folder is not
repeated here. One writer at a time (the run's lock sees to it); readers may look at any moment.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempt (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempt(number),
    status TEXT NOT NULL CHECK (status IN ('open', 'trained', 'scored', 'kept', 'rejected', 'failed')),
    coach TEXT,
    change TEXT NOT NULL,
    rationale TEXT NOT NULL,
    validation_successes INTEGER,
    validation_n INTEGER,
    created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    attempt INTEGER,
    detail TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS budget (name TEXT PRIMARY KEY, allowed REAL NOT NULL, spent REAL NOT NULL);
"""


@dataclass(frozen=True)
class Attempt:
    """A node of the tree."""

    number: int
    parent: int | None
    status: str
    coach: str | None
    change: dict[str, Any]
    rationale: str
    validation_successes: int | None
    validation_n: int | None


@dataclass(frozen=True)
class Event:
    """Something that happened, with the time in seconds since 1970."""

    at: float
    kind: str
    attempt: int | None
    detail: dict[str, Any]


class Campaign:
    """The store of one campaign. Opening creates it; a file that is no such store raises UserError."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "campaign.db"
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise UserError(f"{self.path} is of store version {version}, this program writes {SCHEMA_VERSION}")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self.path} is damaged ({error}); move it away or take another --out") from None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add_attempt(
        self,
        number: int,
        *,
        parent: int | None = None,
        coach: str | None = None,
        change: Mapping[str, Any] | None = None,
        rationale: str = "the configuration as given",
    ) -> None:
        """Adds a node; one that is there already (a resumed run) is brought up to date, its score kept."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO attempt (number, parent, status, coach, change, rationale, created_at)"
                " VALUES (?, ?, 'open', ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET"
                " parent=excluded.parent, coach=excluded.coach, change=excluded.change, rationale=excluded.rationale",
                (number, parent, coach, json.dumps(dict(change or {})), rationale, time.time()),
            )

    def set_status(self, number: int, status: str) -> None:
        """Moves an attempt on: open, trained, scored, kept, rejected or failed."""
        with self._transaction() as db:
            db.execute("UPDATE attempt SET status=? WHERE number=?", (status, number))

    def set_score(self, number: int, successes: int, n: int) -> None:
        """Records the validation result."""
        with self._transaction() as db:
            db.execute(
                "UPDATE attempt SET validation_successes=?, validation_n=?, status='scored' WHERE number=?",
                (successes, n, number),
            )

    def spend(self, name: str, allowed: float, spent: float) -> None:
        """Adds to a budget, such as training seconds."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO budget VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " allowed=excluded.allowed, spent=budget.spent+excluded.spent",
                (name, allowed, spent),
            )

    def record(self, kind: str, attempt: int | None = None, **detail: Any) -> None:
        """Appends an event."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO event (at, kind, attempt, detail) VALUES (?, ?, ?, ?)",
                (time.time(), kind, attempt, json.dumps(detail)),
            )

    def attempts(self) -> list[Attempt]:
        """All nodes, oldest first."""
        rows = self._db.execute(
            "SELECT number, parent, status, coach, change, rationale, validation_successes, validation_n"
            " FROM attempt ORDER BY number"
        )
        return [Attempt(*row[:4], json.loads(row[4]), *row[5:]) for row in rows]

    def events(self, kind: str | None = None) -> list[Event]:
        """Events in their order, of one kind when it is given."""
        rows = self._db.execute("SELECT at, kind, attempt, detail FROM event ORDER BY number")
        return [Event(at, k, attempt, json.loads(detail)) for at, k, attempt, detail in rows if kind in (None, k)]

    def budget(self, name: str) -> tuple[float, float]:
        """(allowed, spent); zeros when nothing was spent."""
        row = self._db.execute("SELECT allowed, spent FROM budget WHERE name=?", (name,)).fetchone()
        return (float(row[0]), float(row[1])) if row else (0.0, 0.0)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
