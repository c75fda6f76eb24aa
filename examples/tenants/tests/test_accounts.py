"""The client of the account service, and what is measured of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from appsdk_operator.runtime import default_metrics

from tenants_operator.accounts import (
    Account,
    Accounts,
    Login,
    NoAccountError,
    NoCapacityError,
    UnavailableError,
)

ACCOUNT = Account("1", "red", 10)
LOGIN = Login("2", "1", "ann", "view")


@pytest.fixture
def service(tmp_path: Path) -> Accounts:
    """A service with one account and one login."""
    service = Accounts(tmp_path / "accounts.sqlite", capacity_gib=100)
    service.put_account(ACCOUNT)
    service.put_login(LOGIN)
    return service


def test_a_repeated_call_changes_nothing(service: Accounts) -> None:
    assert not service.put_account(ACCOUNT)
    service.put_login(LOGIN)
    assert (service.accounts(), service.logins()) == ({ACCOUNT}, {LOGIN})


def test_an_account_goes_with_its_logins_and_may_be_gone_already(service: Accounts) -> None:
    for _ in range(2):
        service.close_account("1")
        service.remove_login("2")
    assert (service.accounts(), service.logins()) == (set(), set())


def test_there_is_no_login_without_an_account(service: Accounts) -> None:
    with pytest.raises(NoAccountError):
        service.put_login(Login("3", "none", "ben", "view"))
    assert service.logins() == {LOGIN}


def test_the_capacity_is_not_exceeded_and_a_refusal_changes_nothing(service: Accounts) -> None:
    with pytest.raises(NoCapacityError, match="91 GiB were asked for, 90 are left"):
        service.put_account(Account("4", "blue", 91))
    assert service.put_account(Account("4", "blue", 90))
    with pytest.raises(NoCapacityError):
        service.put_account(Account("1", "red", 11))
    assert ACCOUNT in service.accounts()


def test_a_service_that_is_down_is_reported_and_counted(tmp_path: Path) -> None:
    def count() -> float:
        labels = {"operation": "accounts", "outcome": "UnavailableError"}
        return default_metrics().value("tenants_account_calls_total", **labels) or 0.0

    before = count()
    with pytest.raises(UnavailableError, match="does not answer"):
        Accounts(tmp_path / "no" / "folder.sqlite").accounts()
    assert count() == before + 1
