"""ListMap: grafana-app-sdk's semantics, without its growth."""

from __future__ import annotations

import random
import sys
import threading
import tracemalloc
from collections import defaultdict
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appsdk_operator.watchers import ListMap
from tests.hypothesis_profiles import scaled


def filled(*items: str, key: str = "k") -> ListMap[str, str]:
    made = ListMap[str, str]()
    made.add_items(key, *items)
    return made


def test_items_come_back_in_the_order_in_which_they_were_added() -> None:
    made = filled("a", "b")
    made.add_item("k", "c")
    assert made.items("k") == ("a", "b", "c")
    assert [made.item_at("k", n) for n in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_an_index_out_of_range_gives_the_default(index: int) -> None:
    made = filled("a", "b")
    assert made.item_at("k", index) is None
    assert made.item_at("k", index, "none") == "none"


def test_an_absent_key_is_never_an_error() -> None:
    made = ListMap[str, str]()
    assert made.items("x") == ()
    assert made.key_size("x") == 0
    assert made.item_at("x", 0) is None
    assert not made.remove_item("x", lambda _: True)
    assert made.remove_items("x", lambda _: True) == 0
    made.remove_item_at("x", 0)
    made.remove_key("x")
    assert (made.keys(), len(made), "x" in made) == ([], 0, False)


def test_it_counts_keys_and_the_items_of_a_key() -> None:
    made = filled("a", "b")
    made.add_item("other", "c")
    assert (len(made), made.key_size("k"), made.key_size("other")) == (2, 2, 1)
    assert sorted(made.keys()) == ["k", "other"]
    assert "k" in made


def test_every_item_is_walked_with_its_key_and_index() -> None:
    made = filled("a", "b")
    made.add_item("other", "c")
    assert list(made.all_items()) == [("k", 0, "a"), ("k", 1, "b"), ("other", 0, "c")]


def test_the_first_item_that_matches_is_removed_and_the_rest_keeps_its_order() -> None:
    made = filled("a", "b", "a", "c")
    assert made.remove_item("k", lambda item: item == "a")
    assert made.items("k") == ("b", "a", "c")
    assert not made.remove_item("k", lambda item: item == "z")


@pytest.mark.parametrize(
    ("limit", "left"), [(-1, ""), (0, ""), (1, "aa"), (2, "a"), (3, ""), (9, "")]
)
def test_a_limit_below_one_removes_all_that_match(limit: int, left: str) -> None:
    made = filled("x", "a", "a", "y", "a")
    removed = made.remove_items("k", lambda item: item == "a", limit=limit)
    assert removed == 3 - len(left)
    assert "".join(made.items("k")).replace("x", "").replace("y", "") == left


def test_a_match_is_asked_no_more_once_the_limit_is_reached() -> None:
    asked: list[str] = []
    made = filled("a", "b", "c")
    made.remove_items("k", lambda item: not asked.append(item), limit=2)  # type: ignore[func-returns-value]
    assert asked == ["a", "b"]


@pytest.mark.parametrize(
    ("index", "left"), [(0, "bc"), (1, "ac"), (2, "ab"), (3, "abc"), (-1, "abc")]
)
def test_removal_by_index_ignores_what_is_out_of_range(index: int, left: str) -> None:
    made = filled("a", "b", "c")
    made.remove_item_at("k", index)
    assert "".join(made.items("k")) == left


def test_a_removed_key_is_gone_with_all_its_items() -> None:
    made = filled("a", "b")
    made.remove_key("k")
    assert (len(made), made.items("k")) == (0, ())


@pytest.mark.parametrize(
    "remove",
    [
        lambda m: m.remove_item("k", lambda _: True),
        lambda m: m.remove_items("k", lambda _: True),
        lambda m: m.remove_item_at("k", 0),
        lambda m: m.remove_key("k"),
    ],
)
def test_a_key_whose_list_becomes_empty_is_forgotten(
    remove: Callable[[ListMap[str, str]], None],
) -> None:
    made = filled("a")
    remove(made)
    assert (made.keys(), len(made), "k" in made) == ([], 0, False)


def test_adding_nothing_makes_no_key() -> None:
    made = ListMap[str, str]()
    made.add_items("k")
    assert len(made) == 0


def test_it_does_not_grow_with_the_keys_that_it_has_ever_seen() -> None:
    made = ListMap[int, int]()

    def churn(start: int) -> None:
        for key in range(start, start + 2000):
            made.add_items(key, 1, 2)
            made.remove_items(key, lambda _: True)

    churn(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        churn(10**6)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
    assert len(made) == 0


def test_the_map_may_be_changed_while_it_is_walked() -> None:
    made = filled("a", "b", "c")
    seen = []
    for item in made.items("k"):
        seen.append(item)
        made.remove_item("k", lambda other, item=item: other == item)
        made.add_item("new", item)
    for key, _, item in made.all_items():
        seen.append(item)
        made.remove_key(key)
    assert seen == ["a", "b", "c", "a", "b", "c"]
    assert len(made) == 0


def test_a_walk_shows_the_items_of_the_moment_in_which_it_was_asked_for() -> None:
    made = filled("a", "b")
    walk = made.all_items()
    made.remove_key("k")
    assert [item for _, _, item in walk] == ["a", "b"]


def test_a_match_may_change_the_map() -> None:
    made = filled("a", "b")

    def match(item: str) -> bool:
        if item == "a":
            made.add_item("k", "c")
            made.remove_item("k", lambda other: other == "b")
        return True

    assert made.remove_items("k", match) == 1
    assert made.items("k") == ("c",)


def test_no_lock_is_held_while_a_match_is_asked() -> None:
    made = filled("a")
    other = threading.Thread(target=made.add_item, args=("other", "x"))

    def match(_: str) -> bool:
        other.start()
        other.join(timeout=5)
        return not other.is_alive()

    assert made.remove_item("k", match)


def test_whoever_loses_a_race_for_the_first_match_gets_the_next() -> None:
    made = filled("a1", "a2", "b")
    is_first = True

    def match(item: str) -> bool:
        nonlocal is_first
        if is_first:
            is_first = False
            made.remove_item("k", lambda other: other == item)  # somebody else is faster
        return item.startswith("a")

    assert made.remove_item("k", match)
    assert made.items("k") == ("b",)


def test_of_equal_items_the_one_that_matched_goes() -> None:
    first, second = [1], [1]
    made = ListMap[str, list[int]]()
    made.add_items("k", first, second)
    assert made.remove_item("k", lambda item: item is second)
    assert made.items("k")[0] is first


def test_an_item_added_twice_is_removed_at_the_place_that_matched() -> None:
    made = filled("a", "b", "a")
    asked = iter([False, False, True])
    made.remove_item("k", lambda _: next(asked))
    assert made.items("k") == ("a", "b")


def test_an_error_of_a_match_leaves_the_map_as_it_is() -> None:
    made = filled("a", "b")

    def match(item: str) -> bool:
        if item == "b":
            raise ValueError("cannot say")
        return True

    with pytest.raises(ValueError, match="cannot say"):
        made.remove_items("k", match)
    assert made.items("k") == ("a", "b")


keys = st.sampled_from("kl")
values = st.integers(0, 3)


class ListMapModel(RuleBasedStateMachine):
    """A ListMap beside a dict of lists that does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.real = ListMap[str, int]()
        self.model: defaultdict[str, list[int]] = defaultdict(list)
        self.snapshots: list[tuple[tuple[int, ...], list[int]]] = []

    @rule(key=keys, items=st.lists(values, max_size=4))
    def add(self, key: str, items: list[int]) -> None:
        self.real.add_items(key, *items)
        self.model[key] += items

    @rule(key=keys, value=values, limit=st.integers(-1, 3))
    def remove(self, key: str, value: int, limit: int) -> None:
        places = [n for n, item in enumerate(self.model[key]) if item == value]
        if limit >= 1:
            places = places[:limit]
        for place in reversed(places):
            del self.model[key][place]
        assert self.real.remove_items(key, lambda i: i == value, limit=limit) == len(places)

    @rule(key=keys, value=values)
    def remove_first(self, key: str, value: int) -> None:
        is_there = value in self.model[key]
        if is_there:
            self.model[key].remove(value)
        assert self.real.remove_item(key, lambda i: i == value) == is_there

    @rule(key=keys, index=st.integers(-1, 5))
    def remove_at(self, key: str, index: int) -> None:
        self.real.remove_item_at(key, index)
        if 0 <= index < len(self.model[key]):
            del self.model[key][index]

    @rule(key=keys)
    def remove_key(self, key: str) -> None:
        self.real.remove_key(key)
        self.model[key] = []

    @rule(key=keys)
    def take_snapshot(self, key: str) -> None:
        self.snapshots.append((self.real.items(key), list(self.model[key])))

    @invariant()
    def they_are_the_same(self) -> None:
        there = {key: items for key, items in self.model.items() if items}
        assert len(self.real) == len(there)
        assert sorted(self.real.keys()) == sorted(there)
        for key in "kl":
            assert list(self.real.items(key)) == self.model[key]
            assert self.real.key_size(key) == len(self.model[key])
            assert self.real.item_at(key, 0, -1) == (self.model[key] or [-1])[0]
            assert (key in self.real) == (key in there)
        walked = defaultdict(list)
        for key, index, item in self.real.all_items():
            assert index == len(walked[key])
            walked[key].append(item)
        assert walked == there
        for snapshot, then in self.snapshots:
            assert list(snapshot) == then


TestListMapModel = ListMapModel.TestCase
TestListMapModel.settings = settings(
    max_examples=scaled(150), stateful_step_count=30, deadline=None
)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors


def test_what_many_threads_append_is_all_there_in_each_writers_order() -> None:
    made = ListMap[int, tuple[int, int]]()
    each, writers = 150, 8

    def write(writer: int) -> None:
        rng = random.Random(writer)
        for number in range(each):
            made.add_items(rng.randrange(3), (writer, 2 * number), (writer, 2 * number + 1))
            for items in map(made.items, range(3)):
                assert len(items) % 2 == 0, "items that were added together are seen together"

    in_threads(writers, write)
    everything = [item for _, _, item in made.all_items()]
    assert len(everything) == 2 * each * writers
    for key in range(3):
        for writer in range(writers):
            own = [number for who, number in made.items(key) if who == writer]
            assert own == sorted(own), "each writer's items are in its own order"
        pairs = list(zip(made.items(key)[::2], made.items(key)[1::2], strict=True))
        assert all(a[0] == b[0] and a[1] + 1 == b[1] for a, b in pairs)


def test_of_many_threads_that_take_items_each_gets_its_own() -> None:
    made = ListMap[str, int]()
    made.add_items("k", *range(400))
    taken: list[list[int]] = [[] for _ in range(8)]

    def take(number: int) -> None:
        for _ in range(50):
            seen: list[int] = []

            def match(item: int, seen: list[int] = seen) -> bool:
                seen.append(item)
                return True

            assert made.remove_item("k", match), "there is one for everybody"
            taken[number].append(seen[-1])

    in_threads(8, take)
    assert len(made) == 0
    assert sorted(item for items in taken for item in items) == list(range(400))
