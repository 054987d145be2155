# SPDX-License-Identifier: Apache-2.0
"""Every public name of the package has a docstring: modules, what their __all__ lists, and the public
functions, methods and properties of these classes. help() and the API reference show them."""
import importlib
import inspect
import pkgutil
import unittest

import world  # noqa: F401  (finds the package)

import harpe


def modules():
    """Yields all public modules."""
    yield harpe
    for found in pkgutil.walk_packages(harpe.__path__, "harpe."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)


def members(kind):
    """Yields the public functions and properties that a class of Harpe defines itself."""
    for name, value in vars(kind).items():
        plain = getattr(value, "__func__", value)
        if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
            yield name, plain


def has_docstring(thing):
    """A dataclass and a named tuple without a docstring get one that only lists their fields."""
    text = thing.__doc__ or ""
    made = f"{thing.__name__}(" if inspect.isclass(thing) else None
    return bool(text.strip()) and not (made and text.startswith(made))


class Docstrings(unittest.TestCase):
    maxDiff = None

    def test_every_public_name_has_one(self):
        missing, seen = [], 0
        for module in modules():
            names = [(module.__name__, module)] + [
                (f"{module.__name__}.{name}", getattr(module, name))
                for name in getattr(module, "__all__", ())]
            for name, thing in names:
                if not (inspect.ismodule(thing) or inspect.isclass(thing)
                        or inspect.isfunction(thing)):
                    continue
                seen += 1
                if not has_docstring(thing):
                    missing.append(name)
                if inspect.isclass(thing) and thing.__module__.startswith("harpe"):
                    for member, value in members(thing):
                        seen += 1
                        # An event that a subclass overrides is explained where it is defined first.
                        if not inspect.getdoc(getattr(thing, member)) and not value.__doc__:
                            missing.append(f"{name}.{member}")
        self.assertEqual(sorted(set(missing)), [])
        self.assertGreater(seen, 400)

    def test_every_public_module_lists_its_names(self):
        """So that help() and the API reference show no more and no less."""
        without = [module.__name__ for module in modules() if not hasattr(module, "__all__")
                   and any(getattr(thing, "__module__", None) == module.__name__
                           and not name.startswith("_") for name, thing in vars(module).items())]
        self.assertEqual(without, [])
