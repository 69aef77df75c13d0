"""`Pool`: jobs without a supervisor that runs already. It starts a private one, which ends with the program."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import os
import subprocess
import sys
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from ._async_client import AsyncClient
from ._client import Client, check_client
from ._supervisor import ASK_AGAIN, START_PATIENCE, PrivateSupervisor

_HERE = os.path.dirname(os.path.abspath(__file__))


class PythonStart(NamedTuple):
    """A worker in Python that `_bootstrap.py` becomes, as its file says."""

    file: dict


Worker = Union[str, "os.PathLike[str]", Sequence[str], PythonStart, None]


class Pool(Client):
    """A private supervisor with its workers, and a client of it.

        with Pool(worker="worker.py") as pool:
            print(pool.call("double", 21))

        async with Pool(worker="worker.py") as pool:        # an AsyncClient
            print(await pool.call("double", 21))

    - `worker`: the path of a worker program in Python, run by this Python; or a list, a command with its arguments; by default
      the built-in tasks of `offload`
    - `workers`: how many worker processes; by default one for each core
    - `env`: variables for workers in Python; they get a clean environment otherwise
    - `arguments`: further flags of `offload serve`, such as `["--max-rss", "1GiB"]`
    - `log`: where the supervisor's log goes, an open file, a descriptor, or `subprocess.DEVNULL`; by default standard error. The
      program may close it once the pool is made
    - `name`, `max_in_flight`: as of `Client`

    Making a pool starts the supervisor; the block, or the first call, waits until a worker is ready, and raises `NoSupervisor` with
    the reason if none can be started. The supervisor ends with `close`, with the block, with the pool itself, and with the
    program, however that ends. Its jobs are cancelled then; `drain` finishes them first. A forked child may use the pool, and
    cannot end it.
    """

    def __init__(
        self,
        worker: Worker = None,
        workers: Optional[int] = None,
        *,
        env: Optional[Dict[str, str]] = None,
        arguments: Sequence[str] = (),
        log: Any = None,
        name: str = "",
        max_in_flight: int = 1000,
    ) -> None:
        check_client(name, max_in_flight)
        words = _checked(worker, workers, env, arguments, log)
        self._supervisor = PrivateSupervisor(log)
        self._end = weakref.finalize(self, self._supervisor.stop)
        try:
            super().__init__(self._supervisor.socket, name=name, max_in_flight=max_in_flight)
            self._supervisor.start(self._command(worker, env or {}), workers, words)
        except BaseException:
            self._end()
            raise

    @property
    def socket(self) -> str:
        """The path of the supervisor's socket, as for `offload --socket PATH status`."""
        return self._supervisor.socket

    def close(self) -> None:
        """Ends the supervisor and its workers. Jobs that have not ended are cancelled. Does nothing in a forked child."""
        super().close()
        self._end()

    def drain(self) -> None:
        """Finishes all jobs that were accepted, however long they take, and ends the supervisor."""
        self._drain()
        self.close()

    def is_ready(self) -> bool:
        """Whether a worker has been ready. Does not wait."""
        return self._supervisor.is_ready()

    def wait_until_ready(self) -> None:
        """Returns when a worker is ready. Raises `NoSupervisor`."""
        self._supervisor.wait_until_ready()

    def async_client(self, *, name: str = "", max_in_flight: int = 1000) -> AsyncClient:
        """A client of the same supervisor for coroutines. The pool has to live as long as it.

        Its first call waits until a worker is ready, as that of the pool does, and raises `NoSupervisor` if none can be started.
        """
        return _ClientOfPool(self._supervisor, name, max_in_flight)

    def __enter__(self) -> "Pool":
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    async def __aenter__(self) -> AsyncClient:
        try:
            await _until_ready(self._supervisor)
        except BaseException:
            await _on_thread(self.close)
            raise
        self._for_block = self.async_client(name=self._name, max_in_flight=self._max_in_flight)
        return self._for_block

    async def __aexit__(self, *_: object) -> None:
        await self._for_block.close()
        await _on_thread(self.close)

    def _address(self) -> str:
        self.wait_until_ready()
        return self.socket

    def _command(self, worker: Worker, env: Dict[str, str]) -> List[str]:
        if worker is None:
            return ["builtin"]
        if isinstance(worker, PythonStart):
            return self._python(worker.file, env)
        if isinstance(worker, (str, os.PathLike)):
            return self._python({"script": os.path.abspath(worker), "arguments": []}, env)
        words = list(worker)
        if not words:
            raise ValueError("an empty command")
        return words

    def _python(self, start: dict, env: Dict[str, str]) -> List[str]:
        """The command of a worker that this Python runs as `start` says."""
        start = {"environ": env, "path": [os.path.dirname(_HERE)], **start}
        file = self._supervisor.write_file("worker.json", start)
        return [sys.executable, os.path.join(_HERE, "_bootstrap.py"), file]


def _checked(worker: Worker, workers: Optional[int], env: Optional[dict], arguments: Sequence[str], log: Any) -> List[str]:
    """The flags, if all of what a pool is given makes sense. Raises `ValueError` or `TypeError`."""
    if workers is not None and operator.index(workers) < 1:
        raise ValueError("workers has to be at least 1")
    if isinstance(arguments, str):
        raise TypeError(f"arguments are a list: [{arguments!r}]")
    words = [*arguments] if isinstance(worker, (str, os.PathLike, PythonStart, type(None))) else [*worker, *arguments]
    for text in (*words, *(env or {}), *(env or {}).values()):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text, as the words of a command, flags and variables are")
        if "\0" in text:
            raise ValueError(f"{text!r} has a zero byte, which no word of a command, flag or variable may have")
    is_file = isinstance(log, int) and not isinstance(log, bool) and (log >= 0 or log == subprocess.DEVNULL)
    if log is not None and not is_file and not hasattr(log, "fileno"):
        raise TypeError(f"log: {log!r} is neither an open file, nor a descriptor, nor subprocess.DEVNULL")
    if getattr(log, "closed", False):
        raise ValueError(f"log: {log!r} is closed")
    return [*arguments]


class _ClientOfPool(AsyncClient):
    """A client of a supervisor that may be starting still."""

    def __init__(self, supervisor: PrivateSupervisor, name: str, max_in_flight: int) -> None:
        super().__init__(supervisor.socket, name=name, max_in_flight=max_in_flight)
        self._supervisor = supervisor

    async def _address(self) -> str:
        await _until_ready(self._supervisor)
        return self._supervisor.socket


async def _until_ready(supervisor: PrivateSupervisor) -> None:
    """Returns when a worker is ready. Raises `NoSupervisor`.

    Whoever is cancelled leaves nothing behind: the end of a loop waits for all threads that wait for it.
    """
    if supervisor.is_ready():
        return
    loop = asyncio.get_running_loop()
    if not supervisor.is_ours():
        end = loop.time() + START_PATIENCE
        while not supervisor.is_known() and loop.time() < end:
            await asyncio.sleep(ASK_AGAIN)
        supervisor.check_ready()
        return
    known: asyncio.Future = loop.create_future()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_set, known)

    supervisor.when_known(tell)
    # Before Python 3.12 `wait_for` loses a cancellation that comes together with what is awaited; `wait` does not.
    await asyncio.wait([known], timeout=START_PATIENCE)
    supervisor.check_ready()


def _set(known: asyncio.Future) -> None:
    if not known.done():
        known.set_result(None)


async def _on_thread(function: Callable[[], Any]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, function)
