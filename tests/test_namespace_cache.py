"""One namespace uses its own share of a cache."""

from functools import partial
from threading import Thread

import pytest

from trimtab import namespace_cache
from trimtab.namespace_cache import BudgetExhausted, NamespaceBudget, NamespaceCache


def test_namespace_cache_keeps_results_of_others_when_one_namespace_floods_it() -> None:
    cache: NamespaceCache[int, int] = NamespaceCache(share=4)
    computed: list[tuple[str, int]] = []

    def look_up(namespace: str, key: int) -> int:
        def compute() -> int:
            computed.append((namespace, key))
            return key

        return cache.get(namespace, key, compute)

    assert look_up("quiet", 1) == 1
    for key in range(1000):
        look_up("loud", key)
    computed.clear()
    assert look_up("quiet", 1) == 1
    assert look_up("loud", 999) == 999
    assert computed == []
    look_up("loud", 0)
    assert computed == [("loud", 0)]


def test_namespace_cache_keeps_the_results_that_were_used_last() -> None:
    cache: NamespaceCache[int, object] = NamespaceCache(share=2)
    first = cache.get("a", 1, object)
    cache.get("a", 2, object)
    assert cache.get("a", 1, object) is first
    cache.get("a", 3, object)
    assert cache.get("a", 1, object) is first


def test_namespace_cache_bounds_the_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_cache, "MAX_NAMESPACES", 3)
    cache: NamespaceCache[int, object] = NamespaceCache(share=1)
    first = cache.get("a", 1, object)
    for namespace in "bcd":
        cache.get(namespace, 1, object)
    assert cache.get("a", 1, object) is not first


def test_namespace_cache_is_used_by_threads() -> None:
    cache: NamespaceCache[int, int] = NamespaceCache(share=2)
    wrong: list[int] = []

    def use() -> None:
        wrong.extend(key for key in range(3000) if cache.get("a", key % 7, partial(int, key % 7)) != key % 7)

    threads = [Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_namespace_cache_computes_for_others_when_one_namespace_has_no_time_left() -> None:
    cache, budget = NamespaceCache[int, int](share=4), NamespaceBudget(1e-9)
    assert cache.get("loud", 1, lambda: sum(range(1000)), budget=budget)
    with pytest.raises(BudgetExhausted, match="namespace loud has many new queries"):
        cache.get("loud", 2, lambda: 2, budget=budget)
    assert cache.get("loud", 1, lambda: 0, budget=budget) != 0, "kept results need no time"
    assert cache.get("quiet", 2, lambda: 2, budget=budget) == 2
    budget.renew()
    assert cache.get("loud", 2, lambda: 2, budget=budget) == 2
