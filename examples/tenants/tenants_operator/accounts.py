"""The account service: what tenants and their users have outside of the cluster.

It stands for a service of another team, which is called over a network: it can be down, it can
refuse, and its answer can be lost after it has done what it was asked for. So each call may be
repeated, and accounts and logins are known by the uids of their objects, which are never used
again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Final

import attrs

from tenants_operator import metrics

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS account (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, storage_gib INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS login (
    id TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES account ON DELETE CASCADE,
    user TEXT NOT NULL, role TEXT NOT NULL);
"""


class UnavailableError(Exception):
    """The service does not answer; whether it has done its work is not known."""


class NoCapacityError(Exception):
    """The service has less storage left than was asked for."""


class NoAccountError(Exception):
    """There is no account for a login."""


@attrs.frozen
class Account:
    """A tenant's account."""

    id: str
    """The uid of the Tenant."""
    name: str
    storage_gib: int


@attrs.frozen
class Login:
    """A user's access to an account."""

    id: str
    """The uid of the Grant."""
    account: str
    user: str
    role: str


class Accounts:
    """The client of the service. Thread-safe: each call has a connection of its own.

    Args:
        path: the file that has the accounts.
        capacity_gib: the storage of all accounts together.
    """

    def __init__(self, path: str | Path, *, capacity_gib: int = 10_000) -> None:
        self.path = path
        self.capacity_gib = capacity_gib

    def put_account(self, account: Account) -> bool:
        """Open an account or change it; whether it is new.

        Raises:
            NoCapacityError, UnavailableError: see these.
        """
        with self.transaction("put_account") as database:
            found = database.execute(
                "SELECT name, storage_gib FROM account WHERE id = ?", [account.id]
            ).fetchone()
            if found == (account.name, account.storage_gib):
                return False
            (used,) = database.execute(
                "SELECT COALESCE(SUM(storage_gib), 0) FROM account WHERE id != ?", [account.id]
            ).fetchone()
            if used + account.storage_gib > self.capacity_gib:
                left = self.capacity_gib - used
                raise NoCapacityError(f"{account.storage_gib} GiB were asked for, {left} are left")
            database.execute(
                "INSERT INTO account VALUES (?, ?, ?) ON CONFLICT (id) "
                "DO UPDATE SET name = excluded.name, storage_gib = excluded.storage_gib",
                attrs.astuple(account),
            )
            return found is None

    def close_account(self, id_: str) -> None:
        """Close an account with all its logins, if there is one.

        Raises:
            UnavailableError: see there.
        """
        with self.transaction("close_account") as database:
            database.execute("DELETE FROM account WHERE id = ?", [id_])

    def put_login(self, login: Login) -> None:
        """Let a user in, or change the role.

        Raises:
            NoAccountError, UnavailableError: see these.
        """
        with self.transaction("put_login") as database:
            try:
                database.execute(
                    "INSERT INTO login VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                    "account = excluded.account, user = excluded.user, role = excluded.role",
                    attrs.astuple(login),
                )
            except sqlite3.IntegrityError as error:
                raise NoAccountError(f"there is no account {login.account}") from error

    def remove_login(self, id_: str) -> None:
        """Shut a user out, if he is let in.

        Raises:
            UnavailableError: see there.
        """
        with self.transaction("remove_login") as database:
            database.execute("DELETE FROM login WHERE id = ?", [id_])

    def accounts(self) -> set[Account]:
        """All accounts.

        Raises:
            UnavailableError: see there.
        """
        with self.transaction("accounts") as database:
            return {Account(*row) for row in database.execute("SELECT * FROM account")}

    def logins(self) -> set[Login]:
        """All logins.

        Raises:
            UnavailableError: see there.
        """
        with self.transaction("logins") as database:
            return {Login(*row) for row in database.execute("SELECT * FROM login")}

    @contextlib.contextmanager
    def transaction(self, operation: str) -> Generator[sqlite3.Connection]:
        """One call of the service, timed and counted: all of it is done, or nothing."""
        with metrics.call(operation):
            try:
                with contextlib.closing(sqlite3.connect(self.path, timeout=1.0)) as database:
                    database.executescript(_TABLES)
                    database.execute("PRAGMA foreign_keys = ON")
                    with database:
                        # The capacity that is read is still there when it is taken.
                        database.execute("BEGIN IMMEDIATE")
                        yield database
            except sqlite3.OperationalError as error:
                raise UnavailableError(f"the account service does not answer: {error}") from error
