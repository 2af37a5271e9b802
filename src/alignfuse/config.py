"""Configuration: frozen keyword-only dataclasses from and to plain dictionaries, and changed by `name=value` texts.

A mistake is a `UserError` that names the setting: an unknown key with the nearest known one, a wrong type with the
value.
"""

import dataclasses
import difflib
import json
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from alignfuse.errors import UserError

Config = TypeVar("Config")


def to_dict(config: object) -> dict[str, Any]:
    """The settings as JSON-ready values: nested dictionaries, lists for tuples, texts for paths."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(cast(Any, config))}


def from_dict(cls: type[Config], data: object, *, where: str = "") -> Config:
    """A config of class `cls`; settings that are not in `data` keep their defaults.

    `where` is the name of the group of settings in messages ("optimizer").
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where or cls.__name__} must be a group of settings, not {_shown(data)}")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls)) if field.init}
    for key in data:
        if key not in fields:
            raise UserError(_unknown(key, fields, where))
    values = {key: _convert(value, hints[key], _join(where, key)) for key, value in data.items()}
    missing = [name for name, field in fields.items() if name not in values and not _has_default(field)]
    if missing:
        raise UserError(f"setting {_join(where, missing[0])!r} is missing and has no default")
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(f"{where or cls.__name__}: {error}") from error


def override(config: Config, changes: Iterable[str]) -> Config:
    """The config with changes such as "optimizer.lr=1e-4" applied in order; "none" clears an optional setting.

    A setting may be named by the end of its path, as "optimizer.lr" for "training.optimizer.lr", where one ends so.
    """
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not path.strip():
            raise UserError(f"{change!r} is no setting: write name=value, for instance optimizer.lr=1e-4")
        config = _replaced(config, _whole_path(config, path.strip()).split("."), text.strip(), "")
    return config


def _whole_path(config: object, path: str) -> str:
    """The path that a shortened one stands for; itself where it is whole or unknown."""
    first = path.split(".")[0]
    if any(field.name == first for field in dataclasses.fields(cast(Any, config))):
        return path
    ends = [whole for whole in _paths(config, "") if f".{whole}".endswith(f".{path}")]
    if len(ends) > 1:
        raise UserError(f"{path!r} may be {' or '.join(ends)}: write more of it")
    if not ends and (near := _nearest(config, path)):
        raise UserError(f"unknown setting {path!r}; did you mean {near!r}?")
    return ends[0] if ends else path


def _nearest(config: object, path: str) -> str | None:
    """The whole path of the setting whose path, or an end of it, is spelt most like this one."""
    wholes = {}
    for whole in _paths(config, ""):
        names = whole.split(".")
        wholes.update({".".join(names[start:]): whole for start in range(len(names))})
    near = difflib.get_close_matches(path, wholes, n=1, cutoff=0.7)
    return wholes[near[0]] if near else None


def _paths(config: object, where: str) -> Iterator[str]:
    """The whole path of every setting."""
    for field in dataclasses.fields(cast(Any, config)):
        value, path = getattr(config, field.name), _join(where, field.name)
        yield path
        if dataclasses.is_dataclass(value):
            yield from _paths(value, path)


def _replaced(config: Config, path: Sequence[str], text: str, where: str) -> Config:
    """The config with the setting at `path` read from `text`."""
    name, rest = path[0], path[1:]
    full = _join(where, name)
    fields = {field.name: field for field in dataclasses.fields(cast(Any, config)) if field.init}
    if name not in fields:
        raise UserError(_unknown(name, fields, where))
    kind, old = get_type_hints(type(config))[name], getattr(config, name)
    cleared = not rest and type(None) in get_args(kind) and text.lower() in ("none", "null")
    if dataclasses.is_dataclass(old) and not cleared:
        if not rest:
            inner = ", ".join(f"{full}.{field.name}" for field in dataclasses.fields(old))
            raise UserError(f"{full!r} is a group of settings: set one of {inner}")
        new: Any = _replaced(old, rest, text, full)
    elif rest and isinstance(old, Mapping) and len(rest) == 1:
        new = {**old, rest[0]: _convert(_read(text), get_args(kind)[1], _join(full, rest[0]))}
    elif rest:
        raise UserError(f"{full!r} has no settings inside, so {_join(full, rest[0])!r} cannot be set")
    else:
        new = _parse(text, kind, full)
    try:
        return cast(Config, dataclasses.replace(cast(Any, config), **{name: new}))
    except ValueError as error:
        raise UserError(f"{full}: {error}") from error


def _parse(text: str, kind: Any, where: str) -> Any:
    """Text from a command line to a value of type `kind`; a text setting may look like a number."""
    try:
        return _convert(_read(text), kind, where)
    except UserError as error:
        try:
            return _convert(text, kind, where)
        except UserError:
            raise error from None


def _read(text: str) -> Any:
    """JSON where it is JSON; true, false and none in any case; a,b,c and (a, b) as lists; otherwise the text itself."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        inner = text[1:-1] if text[:1] in ("(", "[") and text[-1:] in (")", "]") else text
        if inner != text or "," in text:
            return [_read(part.strip()) for part in inner.split(",") if part.strip()]
        return text


def _convert(value: Any, kind: Any, where: str) -> Any:
    """The value as type `kind`, or a message that says what was expected."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, where)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool) != any(isinstance(option, bool) for option in arguments):
            raise UserError(f"{where} must be one of {', '.join(map(str, arguments))}, not {_shown(value)}")
        return value
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_dict(kind, value, where=where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must map names to values, not {_shown(value)}")
        return {str(key): _convert(item, arguments[1], _join(where, str(key))) for key, item in value.items()}
    if origin in (tuple, list):
        return _convert_sequence(value, origin, arguments, where)
    return _convert_scalar(value, kind, where)


def _convert_union(value: Any, options: Sequence[Any], where: str) -> Any:
    """The first option that takes the value; of several groups of settings the one whose `kind` is the value's."""
    problems = []
    groups = [option for option in options if dataclasses.is_dataclass(option)]
    if isinstance(value, Mapping) and "kind" in value and len(groups) > 1:
        named = [option for option in groups if value["kind"] in get_args(get_type_hints(option).get("kind"))]
        options = named or options
    # The exact type first, so that "int | float" keeps 1 and 1.0 apart.
    for option in sorted(options, key=lambda option: type(value) is not option):
        try:
            return _convert(value, option, where)
        except UserError as error:
            problems.append(error)
    if len(options) == 1 or (isinstance(value, Mapping) and groups):
        raise problems[0]
    raise UserError(f"{where} must be {' or '.join(_named(option) for option in options)}, not {_shown(value)}")


def _convert_sequence(value: Any, origin: type, arguments: Sequence[Any], where: str) -> Any:
    """A tuple or list whose items have the right types and, for a tuple of fixed length, the right number."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(f"{where} must be a list of values, not {_shown(value)}")
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise UserError(f"{where} must be {len(arguments)} values, not {len(value)}: {_shown(value)}")
        kinds = list(arguments)
    else:
        kinds = [arguments[0]] * len(value)
    return origin(
        _convert(item, kind, f"{where}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True))
    )


def _convert_scalar(value: Any, kind: Any, where: str) -> Any:
    """A number, text, truth value, path or None."""
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be a finite number, not {_shown(value)}")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{where} must be {_named(kind)}, not {_shown(value)}")
    return value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _unknown(key: str, known: Iterable[str], where: str) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"did you mean {_join(where, near[0])!r}?" if near else f"known: {', '.join(names)}"
    return f"unknown setting {_join(where, key)!r}; {hint}"


def _named(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    if kind in (None, type(None)):
        return "none"
    return names.get(kind, str(getattr(kind, "__name__", kind)))


def _shown(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
