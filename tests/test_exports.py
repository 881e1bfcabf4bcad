"""Laws of the public names: `__all__` is exact, sorted and true, for the package and each of its folders."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import geopatch

PUBLIC = {
    "Collection",
    "Encoding",
    "Gallery",
    "GeoPatch",
    "GeoPatchError",
    "ModelConfig",
    "Signal",
    "TrainConfig",
    "__version__",
    "index",
    "read",
}
PACKAGES = ["geopatch", *(f"geopatch.{found.name}" for found in iter_modules(geopatch.__path__) if found.ispkg)]


def is_ours(value: object) -> bool:
    """Whether a name of a package says something about it; modules and what was imported from elsewhere do not."""
    home = getattr(value, "__module__", None)
    return not isinstance(value, ModuleType) and (not isinstance(home, str) or home.split(".")[0] == "geopatch")


def public_names(module: ModuleType) -> set[str]:
    """The names that a user finds in a package: its own, without underscore; lazy ones count through dir()."""
    named = {name for name in dir(module) if not name.startswith("_")} - {"TYPE_CHECKING", "annotations"}
    return {name for name in named if is_ours(getattr(module, name))}


def test_the_package_exports_exactly_these() -> None:
    assert set(geopatch.__all__) == PUBLIC
    assert set(geopatch.__dir__()) >= PUBLIC


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_without_doubles(package: str) -> None:
    names = list(import_module(package).__all__)
    assert names == sorted(set(names))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_there(package: str) -> None:
    module = import_module(package)
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert not missing, f"{package}.__all__ names what is not there: {missing}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_exported(package: str) -> None:
    module = import_module(package)
    exported = {name for name in module.__all__ if not name.startswith("_")}
    assert public_names(module) | exported == exported, "give it an underscore or add it to __all__"


def test_lazy_names_are_the_real_ones() -> None:
    from geopatch.errors import GeoPatchError
    from geopatch.signal import Signal

    assert geopatch.Signal is Signal
    assert geopatch.GeoPatchError is GeoPatchError


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'geopatch' has no attribute 'nonsense'"):
        geopatch.nonsense  # type: ignore[attr-defined]  # noqa: B018
