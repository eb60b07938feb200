"""From what came over HTTP to the values of ``model``, or an ``ApiError`` that names the field and what it takes.

Query values are text; only the fields that are declared as numbers or booleans are read as such, so that a client id
``null`` or ``1`` stays the text it is. Unknown parameters are refused, and repeated ones unless they are declared as
lists: a filter that is silently not applied would show another client's data.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import inspect

from flockmq.errors import BAD_REQUEST, INVALID_BODY, INVALID_PARAMETER, ApiError

PARAMETERS_MAX: Final = 96

S = TypeVar("S", bound=msgspec.Struct)

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS: Final = {"true": True, "false": False}
_FIELD: Final = re.compile(r"^(?P<text>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)


def decode_text(escaped: str, what: str) -> str:
    """Take the percent escapes off; the result must be UTF-8."""
    try:
        return unquote_to_bytes(escaped).decode()
    except UnicodeDecodeError:
        raise ApiError(BAD_REQUEST, f"{what} is not UTF-8; escape it as UTF-8 bytes (`%C3%A9` for é)") from None


def decode_query(raw: str, shape: type[S]) -> S:
    """Read a query string as the fields of ``shape``."""
    values: dict[str, object] = {}
    lists: dict[str, list[str]] = {}
    readers = _readers(shape)
    parts = raw.split("&") if raw else []
    if len(parts) > PARAMETERS_MAX:
        raise ApiError(INVALID_PARAMETER, f"The query has more than {PARAMETERS_MAX} parameters; leave out some")
    for part in parts:
        if not part:
            continue
        escaped_name, _, escaped_value = part.partition("=")
        name = decode_text(escaped_name.replace("+", " "), "A parameter's name")
        if name not in readers:
            known = ", ".join(readers) or "none"
            raise ApiError(INVALID_PARAMETER, f"There is no parameter {name!r} here; this path takes: {known}")
        if name in values and readers[name] is not list:
            raise ApiError(INVALID_PARAMETER, f"Parameter {name!r} is given twice; give it once")
        text = decode_text(escaped_value.replace("+", " "), f"Parameter {name!r}")
        if readers[name] is list:
            lists.setdefault(name, []).append(text)
            values[name] = lists[name]
        else:
            values[name] = _read(readers[name], name, text)
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise ApiError(INVALID_PARAMETER, _sentence("The query", error)) from None


def decode_body(raw: bytes, shape: type[S]) -> S:
    """Read a JSON body as ``shape``. A whole number may be written as ``1.0``: JSON Schema makes no difference."""
    try:
        try:
            return msgspec.json.decode(raw, type=shape)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            return msgspec.convert(_whole_numbers(msgspec.json.decode(raw)), shape)
    except msgspec.ValidationError as error:
        raise ApiError(INVALID_BODY, _sentence("The body", error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(INVALID_BODY, f"The body is not valid JSON ({error}); send a JSON object") from None


def _whole_numbers(value: Any) -> Any:
    """The same with ``1`` in place of ``1.0``."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: _whole_numbers(one) for name, one in value.items()}
    return value


def _sentence(what: str, error: msgspec.ValidationError) -> str:
    found = _FIELD.match(str(error))
    text, place = (found["text"], found["place"]) if found else (str(error), None)
    where = f"{what}, field `{place}`" if place else what
    return f"{where} can't be used: {text}; see /api/v1/docs for what this operation takes"


def _readers(shape: type[msgspec.Struct]) -> dict[str, type]:
    """Field name -> int, bool, list (of text) or str, from the declared types (``T | None`` counts as T)."""
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: _reader(field.type) for field in info.fields}


def _reader(declared: inspect.Type) -> type:
    if isinstance(declared, inspect.Metadata):
        return _reader(declared.type)
    if isinstance(declared, inspect.UnionType):
        inner = [part for part in declared.types if not isinstance(part, inspect.NoneType)]
        return _reader(inner[0])
    if isinstance(declared, inspect.IntType):
        return int
    if isinstance(declared, inspect.BoolType):
        return bool
    if isinstance(declared, inspect.ListType):
        return list
    return str


def _read(reader: type, name: str, text: str) -> Any:
    if reader is int:
        if not _INTEGER.fullmatch(text):
            raise ApiError(INVALID_PARAMETER, f"Parameter {name!r} takes a whole number, not {text!r}")
        return int(text)
    if reader is bool:
        if text not in _BOOLEANS:
            raise ApiError(INVALID_PARAMETER, f"Parameter {name!r} takes true or false, not {text!r}")
        return _BOOLEANS[text]
    return text
