# SPDX-License-Identifier: Apache-2.0
"""Checks data in the manner of pydantic 1, without pydantic: the base of the models in common.py.
Annotations declare the fields. The conversions and their messages are those of the server
(src/pfo/fields.c), so that Python and the server accept the same models."""
from __future__ import annotations

import copy
import functools
import json
import math
import os
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Dict, Iterator, List, Tuple, Type, TypeVar, Union

_Place = Tuple[Union[str, int], ...]
_Self = TypeVar("_Self", bound="Model")

_BOOL_TEXTS = {**dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
               **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False)}
_INT_LIMITS = (-2 ** 31, 2 ** 31 - 1)  # the range of the server's integers
_INT_TEXT = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_FLOAT_TEXT = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_UNREADABLE = object()


class ValidationError(ValueError):
    """Describes every wrong field of a model in one line. errors() returns the same as data."""

    def __init__(self, model: str, problems: List[Dict[str, Any]]) -> None:
        self.model = model
        self._problems = problems
        super().__init__(f"{model}: " + "; ".join(
            f"{_shown(problem['loc'])}: {problem['msg']}" for problem in problems))

    def errors(self) -> List[Dict[str, Any]]:
        """Returns one {"loc", "msg", "type"} for each wrong field, in the form of the server's
        answers."""
        return copy.deepcopy(self._problems)


def _shown(place: _Place) -> str:
    """Formats ("frequencies", 3, 1) as "frequencies[3][1]"."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}"
                   for part in place).lstrip(".")


# ---- Values ----

@functools.lru_cache(maxsize=None)
def _shape(wanted: Any) -> Tuple[Any, Tuple[Any, ...]]:
    """Splits List[int] into (list, (int,))."""
    return typing.get_origin(wanted), typing.get_args(wanted)


class _Reader:
    """Converts values to the types of the annotations and collects the values that cannot be
    converted."""

    def __init__(self) -> None:
        self.problems: List[Dict[str, Any]] = []

    def refuse(self, place: _Place, kind: str, message: str, **context: Any) -> Any:
        problem: Dict[str, Any] = {"loc": place, "msg": message, "type": kind}
        if context:
            problem["ctx"] = context
        self.problems.append(problem)
        return _UNREADABLE

    def read(self, wanted: Any, value: Any, place: _Place) -> Any:
        origin, parts = _shape(wanted)
        if wanted is Any:
            return value
        if origin is Union:  # Optional
            return None if value is None else self.read(parts[0], value, place)
        if value is None:
            return self.refuse(place, "type_error.none.not_allowed", "none is not an allowed value")
        if wanted is bool:
            return self._read_bool(value, place)
        if wanted is int:
            return self._read_int(value, place)
        if wanted is float:
            return self._read_float(value, place)
        if wanted is str:
            return self._read_str(value, place)
        if origin is list:
            return self._read_list(parts[0], value, place)
        if origin is tuple:
            return self._read_tuple(parts, value, place)
        if origin is dict:
            return self._read_dict(parts, value, place)
        return self._read_model(wanted, value, place)

    def _read_bool(self, value: Any, place: _Place) -> Any:
        if isinstance(value, (bool, int, str)) and str(value).lower() in _BOOL_TEXTS:
            return _BOOL_TEXTS[str(value).lower()]
        return self.refuse(place, "type_error.bool", "value could not be parsed to a boolean")

    def _read_int(self, value: Any, place: _Place) -> Any:
        number = _UNREADABLE
        if type(value) is int:
            number = value
        elif isinstance(value, str):
            number = int(value) if _INT_TEXT.fullmatch(value) else _UNREADABLE
        elif hasattr(value, "__index__") and not isinstance(value, bool):
            number = value.__index__()
        elif hasattr(value, "__float__") and not isinstance(value, bool):
            number = int(value) if math.isfinite(value) and value == int(value) else _UNREADABLE
        if number is _UNREADABLE or not -2 ** 63 <= number < 2 ** 63:  # type: ignore[operator]
            return self.refuse(place, "type_error.integer", "value is not a valid integer")
        return self.limited(number, place, *_INT_LIMITS)

    def limited(self, number: Any, place: _Place, least: int, most: int) -> Any:
        if number < least:
            return self.refuse(place, "value_error.number.not_ge",
                               f"ensure this value is greater than or equal to {least}",
                               limit_value=least)
        if number > most:
            return self.refuse(place, "value_error.number.not_le",
                               f"ensure this value is less than or equal to {most}",
                               limit_value=most)
        return number

    def _read_float(self, value: Any, place: _Place) -> Any:
        number = math.nan
        try:
            if isinstance(value, str):
                number = float(value) if _FLOAT_TEXT.fullmatch(value) else math.nan
            elif hasattr(value, "__float__") and not isinstance(value, bool):
                number = float(value)
        except OverflowError:
            pass
        if not math.isfinite(number):
            return self.refuse(place, "type_error.float", "value is not a valid float")
        return number

    def _read_str(self, value: Any, place: _Place) -> Any:
        if isinstance(value, (str, bool, int)) or (
                isinstance(value, float) and math.isfinite(value)):
            return str(value)
        return self.refuse(place, "type_error.str", "str type expected")

    def _read_list(self, item: Any, value: Any, place: _Place) -> Any:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            return self.refuse(place, "type_error.list", "value is not a valid list")
        values = list(value)
        if item is float and all(type(v) is float and math.isfinite(v) for v in values):
            return values  # this is by far the most frequent case
        return [self.read(item, one, place + (index,)) for index, one in enumerate(values)]

    def _read_tuple(self, parts: Tuple[Any, ...], value: Any, place: _Place) -> Any:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            return self.refuse(place, "type_error.tuple", "value is not a valid tuple")
        values = tuple(value)
        if len(values) != len(parts):
            return self.refuse(
                place, "value_error.tuple.length",
                f"wrong tuple length {len(values)}, expected {len(parts)}",
                actual_length=len(values), expected_length=len(parts))
        return tuple(self.read(part, one, place + (index,))
                     for index, (part, one) in enumerate(zip(parts, values)))

    def _read_dict(self, parts: Tuple[Any, ...], value: Any, place: _Place) -> Any:
        if not isinstance(value, Mapping):
            return self.refuse(place, "type_error.dict", "value is not a valid dict")
        return {self.read(parts[0], key, place + ("__key__",)):
                self.read(parts[1], one, place + (str(key),)) for key, one in value.items()}

    def _read_model(self, wanted: Type[Model], value: Any, place: _Place) -> Any:
        if isinstance(value, wanted):
            return value
        if not isinstance(value, Mapping):
            return self.refuse(place, "type_error.dict", "value is not a valid dict")
        model = wanted.__new__(wanted)
        model._fill(self, value, place)
        return model


# ---- Models ----

class Model:
    """The base of all models. A model is created from keywords. Wrong keywords raise one
    ValidationError that lists every wrong field; unknown keywords are ignored. A later assignment
    to a field is not checked."""

    _minimum: ClassVar[Dict[str, int]] = {}  # least values of integer fields
    _left_out: ClassVar[Tuple[str, ...]] = ()  # fields that are not written while they are None

    def __init__(self, **values: Any) -> None:
        reader = _Reader()
        self._fill(reader, values, ())
        if reader.problems:
            raise ValidationError(type(self).__name__, reader.problems)

    def _fill(self, reader: _Reader, values: Mapping[str, Any], place: _Place) -> None:
        before = len(reader.problems)
        for name, wanted in self._kinds().items():
            here = place + (name,)
            if name in values:
                value = reader.read(wanted, values[name], here)
                if name in self._minimum and isinstance(value, int):
                    value = reader.limited(value, here, self._minimum[name], _INT_LIMITS[1])
            elif hasattr(type(self), name):
                value = copy.deepcopy(getattr(type(self), name))
            else:
                value = reader.refuse(here, "value_error.missing", "field required")
            self.__dict__[name] = value
        if len(reader.problems) == before:
            for name, message in self._complaints():
                reader.refuse(place + (name,), "assertion_error", message)

    def _complaints(self) -> Iterator[Tuple[str, str]]:
        """Yields (field, message) for mistakes that involve several fields."""
        return iter(())

    @classmethod
    def _kinds(cls) -> Dict[str, Any]:
        """Returns the fields and their expected types, in the order in which they are written."""
        if "_kinds_found" not in cls.__dict__:
            hints = typing.get_type_hints(cls)
            cls._kinds_found = {  # type: ignore[attr-defined]
                name: hint for name, hint in hints.items()
                if name == "__root__" or not name.startswith("_")}
        return cls._kinds_found  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def parse_obj(cls: Type[_Self], obj: Any) -> _Self:
        """Creates a model from the result of json.loads()."""
        if "__root__" in cls._kinds() and not (isinstance(obj, Mapping) and "__root__" in obj):
            return cls(__root__=obj)
        if isinstance(obj, cls):
            return obj.copy()
        if not isinstance(obj, Mapping):
            raise ValidationError(cls.__name__, [{
                "loc": ("__root__",), "type": "type_error",
                "msg": f"{cls.__name__} expected dict not {type(obj).__name__}"}])
        return cls(**{str(name): value for name, value in obj.items() if name != "self"})

    @classmethod
    def parse_raw(cls: Type[_Self], b: Union[str, bytes]) -> _Self:
        """Creates a model from a JSON text."""
        try:
            obj = json.loads(b)
        except (ValueError, RecursionError) as error:
            raise ValidationError(cls.__name__, [{
                "loc": ("__root__",), "type": "value_error.jsondecode",
                "msg": str(error)}]) from None
        return cls.parse_obj(obj)

    @classmethod
    def parse_file(cls: Type[_Self], path: Union[str, os.PathLike[str]]) -> _Self:
        """Creates a model from a JSON file."""
        with open(path, "rb") as file:
            data = file.read()
        try:
            return cls.parse_raw(data)
        except ValidationError as error:
            raise ValidationError(f"{os.fspath(path)}: {error.model}", error.errors()) from None

    def dict(self) -> Dict[str, Any]:
        """Returns fields and values as plain dictionaries, copied lists, and numbers."""
        return {name: _plain(self.__dict__[name]) for name in self._kinds()
                if name not in self._left_out or self.__dict__[name] is not None}

    def json(self, **dumps_arguments: Any) -> str:
        """Returns the model as JSON. The arguments are those of json.dumps()."""
        values = self.dict()
        return json.dumps(values.get("__root__", values), **dumps_arguments)

    def copy(self: _Self) -> _Self:
        """Returns a copy that has its own lists."""
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return self.dict() == other
        return self.dict() == other.dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._kinds())
        return f"{type(self).__name__}({values})"


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.dict()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value
