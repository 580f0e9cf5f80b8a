"""The pytest plugin: capability gates and declared deviations.

A test marked `requires("tty")` runs only where its class's `capabilities` have
"tty". A test named in its class's `deviations` must fail, for the reason that
stands there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = ("isobox", "isobox.testing.plugin")

pytest.register_assert_rewrite("isobox.testing.contract")


def pytest_plugin_registered(
    plugin: object, plugin_name: str, manager: pytest.PytestPluginManager
) -> None:
    """Let the plugin come by `-p` as well as by its entry point."""
    if getattr(plugin, "__name__", None) == __name__:
        for other in set(_NAMES) - {plugin_name}:
            manager.set_blocked(other)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "requires(*capabilities): run only where the backend has them all"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs more than the backend has; expect what it declares.

    Raises:
        pytest.UsageError: A class's deviations name a test that there is not.
    """
    classes: set[type] = set()
    for item in items:
        owner: type | None = getattr(item, "cls", None)
        capabilities: frozenset[str] | None = getattr(owner, "capabilities", None)
        if owner is not None and capabilities is not None:
            classes.add(owner)
            _gate(item, capabilities)
            _expect(item, _deviations(owner))
    for owner in classes:
        _check_deviations(owner)


def _deviations(owner: type) -> Mapping[str, str]:
    return getattr(owner, "deviations", {})


def _gate(item: pytest.Item, capabilities: frozenset[str]) -> None:
    needed = {name for mark in item.iter_markers("requires") for name in mark.args}
    if missing := needed - capabilities:
        reason = f"the backend has no {', '.join(sorted(missing))}"
        item.add_marker(pytest.mark.skip(reason=reason))


def _expect(item: pytest.Item, deviations: Mapping[str, str]) -> None:
    reason = deviations.get(getattr(item, "originalname", item.name))
    if reason is not None:
        item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _check_deviations(owner: type) -> None:
    names = _deviations(owner)
    if unknown := sorted(name for name in names if not hasattr(owner, name)):
        raise pytest.UsageError(
            f"{owner.__name__}.deviations names no test: {', '.join(unknown)}"
        )
