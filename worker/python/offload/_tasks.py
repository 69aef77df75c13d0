"""Tasks: functions with a name, what they take, and what they promise."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import types
import typing
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from . import _messages as messages
from ._errors import TaskError
from ._payload import BYTES, JSON, TEXT, from_json, from_payload, from_text, is_json, to_payload
from ._wire import check_media_type, cut, frame

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_JSON_TYPES = {int: "integer", float: "number", bool: "boolean", list: "array", dict: "object", type(None): "null"}
_MEDIA_TYPES = {bytes: BYTES, str: TEXT}
_DESCRIPTION_MAX = 256
_TEXTS_MAX = 64 << 10
_PROGRESS_MAX = 4_000_000

# The tasks of this program: `task` registers them, `serve` offers them.
registered: Dict[str, "Task"] = {}
set_ups: List[Callable[[], Any]] = []


class Task:
    """A function that jobs can ask for, and its offer. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any], name: Optional[str] = None, **options: Any) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a task: 1 to 64 letters, digits, '.', '_' or '-', the first a letter")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{self.name}: a task is an ordinary function; a worker runs one job at a time")
        self.is_generator = inspect.isgeneratorfunction(inspect.unwrap(function))
        self._options = options
        self._inputs = _inputs_of(function)
        self._describe(**options)

    def called(self, name: str) -> "Task":
        """The same task under another name."""
        return Task(self.function, name, **self._options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def _describe(
        self,
        idempotent: bool = False,
        description: Optional[str] = None,
        schema: Optional[dict] = None,
        example: Any = None,
        accepts: Union[str, Iterable[str], None] = None,
        produces: Optional[str] = None,
        checkpoints: bool = False,
        progress_within: Optional[float] = None,
        memory: int = 0,
    ) -> None:
        summary = (self.function.__doc__ or "").strip().partition("\n")[0]
        wanted = self._accepted() if accepts is None else [accepts] if isinstance(accepts, str) else list(accepts)
        self._example = b"" if example is None else to_payload(example)[0]
        schema = self._schema() if schema is None else schema
        self._schema_text = json.dumps(schema).encode() if schema else b""
        if len(self._example) + len(self._schema_text) > _TEXTS_MAX or len(wanted) > 8:
            raise ValueError(f"{self.name}: at most {_TEXTS_MAX} bytes of example and schema, and 8 accepted media types")
        self._task = messages.TaskOffer(self.name, idempotent, "cpu", False, checkpoints, _milliseconds(progress_within))
        self._about = messages.TaskDescription(
            cut(summary if description is None else description, _DESCRIPTION_MAX),
            [check_media_type(kind) for kind in wanted],
            check_media_type(produces or self._produced()),
            self.is_generator,
            memory,
            False,
        )

    def offer(self) -> bytes:
        """The frame of its offer."""
        texts = (len(self._example), len(self._schema_text))
        header = messages.FROM_WORKER.encode(messages.Offer(self._task, self._about, *texts))
        return frame(header, self._example + self._schema_text)

    def run(self, data: bytes, media_type: str) -> Any:
        """Calls the function with an input. Raises `TaskError` if the function does not take it."""
        inputs = self._inputs
        if inputs is None:
            return self.function()
        if isinstance(inputs, dict):
            return self.function(**_named(inputs, _read(from_json, data)))
        if inputs is bytes:
            return self.function(data)
        return self.function(_converted(data, media_type, inputs))

    def _accepted(self) -> List[str]:
        if self._inputs is None or self._inputs is inspect.Parameter.empty:
            return []
        return [_MEDIA_TYPES.get(self._inputs, JSON)] if not isinstance(self._inputs, dict) else [JSON]

    def _produced(self) -> str:
        kind = _hints(self.function).get("return")
        return _MEDIA_TYPES.get(kind, JSON if kind in _JSON_TYPES else "*/*")  # type: ignore[arg-type]

    def _schema(self) -> Optional[dict]:
        if not isinstance(self._inputs, dict):
            return _schema_of(self._inputs)
        required = [name for name, (_, is_required) in self._inputs.items() if is_required]
        properties = {name: _schema_of(kind) or {} for name, (kind, _) in self._inputs.items()}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def task(function: Optional[Callable[..., Any]] = None, /, **options: Any) -> Any:
    """Makes a function a task that `serve` offers.

    A function of one parameter takes the whole input: as `bytes`, as `str`, or parsed from JSON, as its annotation says; one
    without an annotation takes what the media type of the input says. A function of several parameters takes a JSON object
    with their names. What it returns is the output: bytes, text, or anything that JSON can express. A generator function
    sends what it yields as parts of the output.

    - `name`: by default the name of the function
    - `idempotent`: running it twice does no harm, so its jobs are tried again when their worker dies
    - `description`: by default the first line of its docstring; at most 256 bytes
    - `schema`: a JSON Schema of the input, by default made from the annotations; `example`: an input to try it with
    - `accepts`, `produces`: media types
    - `checkpoints`: it calls `checkpoint`, and goes on from `resumed`
    - `progress_within`: it promises to call `progress` at least every so many seconds; a job that does not is killed
    - `memory`: how many bytes a job needs, for people

    Raises `ValueError` for a name that no task can have or that is taken, for texts that are too long and a promise that makes
    no sense, and `TypeError` for a function that cannot be called with an input.
    """

    def register(function: Callable[..., Any]) -> Any:
        made = Task(function, **options)
        if made.name in registered and registered[made.name].function.__qualname__ != function.__qualname__:
            raise ValueError(f"there is a task {made.name!r} already")
        registered[made.name] = made
        return function

    return register if function is None else register(function)


def setup(function: Callable[[], Any]) -> Callable[[], Any]:
    """Has `function()` called once in each worker process before it takes jobs, as to load a model.

    The supervisor waits for it for at most its `hello_timeout` (10 s unless configured otherwise).
    """
    set_ups.append(function)
    return function


def _hints(function: Callable[..., Any]) -> Dict[str, Any]:
    """The annotations that can be resolved. One that names what is imported for type checkers only says nothing."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    hints: Dict[str, Any] = {}
    for name, annotation in (getattr(function, "__annotations__", None) or {}).items():
        with contextlib.suppress(Exception):
            one = types.SimpleNamespace(__annotations__={name: annotation})
            hints.update(typing.get_type_hints(one, names))
    return hints


def _inputs_of(function: Callable[..., Any]) -> Any:
    """What it takes: `None` for nothing, a type for one value, a `dict` for several by name."""
    hints = _hints(function)
    all_parameters = inspect.signature(function).parameters.values()
    parameters = [p for p in all_parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not parameters and all_parameters:
        raise TypeError("a task with nothing but *args or **kwargs never gets its input: name its parameters")
    if not parameters:
        return None
    if len(parameters) == 1 and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError("the only parameter of a task is given the whole input by position, so it may not be keyword only")
    if len(parameters) == 1:
        return hints.get(parameters[0].name, inspect.Parameter.empty)
    if any(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in parameters):
        raise TypeError("the parameters of a task that takes several are given by name, so none may be positional only")
    return {p.name: (hints.get(p.name, inspect.Parameter.empty), p.default is p.empty) for p in parameters}


def _schema_of(kind: Any) -> Optional[dict]:
    if kind is str:
        return {"type": "string"}
    origin = typing.get_origin(kind) or kind
    word = _JSON_TYPES.get(origin) if isinstance(origin, type) else None
    return {"type": word} if word else None


def _read(reader: Callable[..., Any], *arguments: Any) -> Any:
    """What a reader makes of the input. Raises `TaskError` if the input is not what it says."""
    try:
        return reader(*arguments)
    except ValueError as error:
        raise TaskError(f"the input is {error}") from None


def _converted(data: bytes, media_type: str, kind: Any) -> Any:
    """The input as the only parameter of a function takes it."""
    if kind is inspect.Parameter.empty or kind is Any:
        return _read(from_payload, data, media_type)
    if kind is str and not is_json(media_type):
        return _read(from_text, data, media_type)
    return _checked(_read(from_json, data), kind, "the input")


def _named(inputs: dict, given: Any) -> dict:
    if not isinstance(given, dict):
        raise TaskError(f"the input must be a JSON object with {', '.join(inputs)}")
    missing = [name for name, (_, is_required) in inputs.items() if is_required and name not in given]
    unknown = [name for name in given if name not in inputs]
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
        raise TaskError(f"the input {wrong}; it takes {', '.join(inputs)}")
    return {name: _checked(value, inputs[name][0], name) for name, value in given.items()}


def _checked(value: Any, kind: Any, what: str) -> Any:
    """The value, if JSON made it of the annotated type. Types other than those of JSON are not checked."""
    origin = typing.get_origin(kind) or kind
    if origin is float and type(value) is int:
        return float(value)
    if origin not in _JSON_TYPES and origin is not str:
        return value
    if not isinstance(value, origin) or (origin is int and isinstance(value, bool)):
        raise TaskError(f"{what} must be {_JSON_TYPES.get(origin, 'string')}, not {type(value).__name__}")
    return value


def _milliseconds(seconds: Optional[float]) -> int:
    """How often a task promises to report its progress. Raises `ValueError` for what no task can promise."""
    if seconds is None:
        return 0
    if not 0 < seconds <= _PROGRESS_MAX:
        raise ValueError(f"progress_within {seconds} s; more than 0 and at most {_PROGRESS_MAX:,} s are possible")
    return max(1, round(seconds * 1000))
