"""`Executor`: a `concurrent.futures.Executor` in which a crash costs one future."""

from __future__ import annotations

import base64
import contextlib
import logging
import operator
import os
import pickle
import queue
import threading
import weakref
from concurrent.futures import Executor as _Executor
from concurrent.futures import Future
from multiprocessing import spawn
from typing import Any, Callable, Optional, Sequence, Set, Tuple

from ._calls import TASK, pack_call, unpack_result
from ._connection import Connection, WaitedRequest
from ._errors import JobError, OffloadError, Rejected
from ._pool import Pool, PythonStart
from ._requests import job_request

# So many calls are under way for each worker. The others can still be cancelled.
_AHEAD = 8
# How long a worker may take to import the program and to run the initializer.
_START_MAX = "60s"
# The supervisor has no room now: these calls are sent again, when it says so or after this many seconds.
_WORTH_WAITING = ("overloaded", "quota")
_RETRY_AFTER = 0.1
# What of `multiprocessing`'s description of a program is needed to find its functions. Its secret is not passed on.
_OF_MAIN = ("dir", "init_main_from_name", "init_main_from_path", "name", "orig_dir", "sys_argv", "sys_path")

# Where the standard library says that a callback has failed.
_LOG = logging.getLogger("concurrent.futures")


class Executor(_Executor):
    """Calls functions in worker processes, like `concurrent.futures.ProcessPoolExecutor`.

        with Executor() as executor:
            for result in executor.map(render, pages):
                ...

    The differences: if a worker process dies, only the future of the call that it ran fails, with a `JobError` (`outcome` is
    `worker_crashed`); the others go on. `timeout` ends a call that takes longer, also in native code, with a `JobError`
    (`timeout`).

    - `max_workers`: by default one for each core
    - `initializer(*initargs)` is called in each worker process before its first call
    - `max_tasks_per_child`: a worker is replaced after so many calls, or up to a quarter more
    - `timeout`: how many seconds one call may run; by default 5 minutes
    - `attempts`: how often a call may be tried if its worker dies; by default once
    - `log`, `arguments`: as of `Pool`

    As there, functions, arguments and results are pickled; functions are found by their module, so workers import the program,
    which has to start what it does within `if __name__ == "__main__":`. Workers have the program's environment.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: tuple = (),
        *,
        max_tasks_per_child: Optional[int] = None,
        timeout: Optional[float] = None,
        attempts: Optional[int] = None,
        log: Any = None,
        arguments: Sequence[str] = (),
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers has to be at least 1")
        if max_tasks_per_child is not None and operator.index(max_tasks_per_child) < 1:
            raise ValueError("max_tasks_per_child has to be at least 1")
        options = {"timeout": timeout, "attempts": attempts}
        job_request(TASK, **options)
        flags = ["--hello-timeout", _START_MAX]
        flags += [] if max_tasks_per_child is None else ["--max-jobs-per-worker", str(max_tasks_per_child)]
        pool = Pool(_start(initializer, initargs), max_workers, env=dict(os.environ), arguments=[*flags, *arguments], log=log)
        self._calls = _Calls(pool, options, _AHEAD * (max_workers or os.cpu_count() or 1))
        # Its threads hold the calls, and not the executor: one that the program has dropped is shut down.
        weakref.finalize(self, self._calls.end).atexit = False
        self._process = os.getpid()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Calls `fn(*args, **kwargs)` in a worker. What cannot be pickled, or sent, is the exception of the future."""
        if os.getpid() != self._process:
            raise OffloadError("this executor belongs to the process that made it, before the fork")
        return self._calls.submit(fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and ends the workers when all that were submitted are done. `wait` returns only then.

        `cancel_futures` cancels those that no worker has begun. A callback of a future (`add_done_callback`) never waits.
        """
        if os.getpid() == self._process:
            self._calls.shut_down(wait, cancel_futures)


class _Calls:
    """All calls of an executor, with the threads that send them, that read their answers, and that tell the futures.

    All run from the beginning, and whatever ends one of them, it ends the calls that it owes. So whoever submits a call starts no
    thread and takes no lock: it is in the queue, or it is not. To tell a future runs code of the program, which may take long; the
    answers of all others are read meanwhile, because the supervisor closes a connection that does not take them.
    """

    def __init__(self, pool: Pool, options: dict, places: int) -> None:
        self._pool = pool
        self._options = options
        self._places = places
        self._free = threading.Semaphore(places)
        self._waiting: "queue.SimpleQueue[Optional[_Call]]" = queue.SimpleQueue()
        self._to_read: "queue.SimpleQueue[Optional[Connection]]" = queue.SimpleQueue()
        self._read_from: Optional[Connection] = None
        self._to_tell: "queue.SimpleQueue[Optional[Tuple[_Call, WaitedRequest]]]" = queue.SimpleQueue()
        # Threads that tell futures their results just now, and so run their callbacks.
        self._telling: Set[int] = set()
        self._is_shut_down = False
        self._takes_back = False
        # Whether the thread that sends has ended, and takes nothing out of the queue any more.
        self._is_over = False
        # The same of the thread that tells.
        self._tells_no_more = False
        self._sender = threading.Thread(target=self._send_all, name="offload executor", daemon=True)
        try:
            threading.Thread(target=self._read_all, name="offload answers", daemon=True).start()
            threading.Thread(target=self._tell_all, name="offload futures", daemon=True).start()
            self._sender.start()
        except BaseException:  # there may be no more threads
            self._to_read.put(None)
            self._to_tell.put(None)
            pool.close()
            raise

    def submit(self, function: Callable[..., Any], arguments: tuple, named: dict) -> Future:
        if self._is_shut_down or self._is_over:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _Future()
        data, error = _packed(function, arguments, named)
        if error is not None:
            future.set_exception(error)
            return future
        self._waiting.put(_Call(future, data))
        if self._is_over:  # since then
            self._cancel_waiting()
        return future

    def shut_down(self, wait: bool, cancel_futures: bool) -> None:
        self._is_shut_down = True
        if cancel_futures:
            self._takes_back = True
            self._cancel_waiting()
        self.end()
        if cancel_futures and self._pool.is_ready():  # nothing has been sent before
            self._take_back()
        if wait and threading.get_ident() not in self._telling:
            self._sender.join()

    def end(self) -> None:
        """No more calls come. Takes no lock, because the collector of garbage may call it in the middle of any line."""
        self._waiting.put(None)

    def _cancel_waiting(self) -> None:
        """Cancels the calls that were not sent."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._waiting.get_nowait())
        for call in taken:
            if call is None:
                self._waiting.put(None)
            else:
                call.future.cancel()
                call.future.set_running_or_notify_cancel()

    def _take_back(self) -> None:
        """Cancels the calls that were sent and that no worker has begun."""
        try:
            self._pool.cancel_queued()
        except OffloadError:  # it has not started, or has ended: so do all calls
            pass

    def _send_all(self) -> None:
        """The thread that sends: until the shutdown, as many as there are places for. Another one reads the answers."""
        try:
            while self._send_next():
                pass
            for _ in range(self._places):
                self._free.acquire()
        finally:
            self._is_over = True
            try:
                self._pool.close()  # which ends the calls that were sent
            finally:
                self._to_read.put(None)
                self._to_tell.put(None)
                self._cancel_waiting()

    def _send_next(self) -> bool:
        """Sends the next call when there is a place for it. Whether there is one.

        On its own, so that nothing holds the call and its result while this thread waits for the next one.
        """
        call = self._waiting.get()
        if call is None:
            return False
        self._free.acquire()
        try:
            if call.future.set_running_or_notify_cancel():
                self._send(call)
            else:
                self._free.release()
        except BaseException as error:  # out of memory, or the program has ended the future itself: it costs this call only
            self._finish(call, error=_bare(error))
        return True

    def _send(self, call: "_Call") -> None:
        try:
            self._pool.wait_until_ready()
            if self._takes_back:
                raise JobError("cancelled", "the executor was shut down")
            job = job_request(TASK, call.data, **self._options)
            request = self._pool.ask(job.header, job.data, WaitedRequest(lambda request: self._answered(call, request)))
            self._read(request.connection)
            if self._takes_back:  # since then, and whoever has taken back all calls may not have seen this one
                self._take_back()
        except BaseException as error:
            self._finish(call, error=_bare(error))

    def _read(self, connection: Connection) -> None:
        """Has the answers of this connection read."""
        if connection is not self._read_from:
            self._to_read.put(connection)
            self._read_from = connection

    def _read_all(self) -> None:
        """The thread that reads: one connection after the other, because a new one is made when that before has ended."""
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        connection = self._to_read.get()
        if connection is None:
            return False
        try:
            connection.wait_for_loss()
        except BaseException:  # out of memory, perhaps
            _LOG.exception("the answers of an executor cannot be read")
            connection.close()  # which ends the calls that wait for them
        return True

    def _answered(self, call: "_Call", request: Any) -> None:
        """On the thread that reads, or one that reads while it sends."""
        error = request.error
        if isinstance(error, Rejected) and error.code in _WORTH_WAITING:
            again = threading.Timer(error.retry_after or _RETRY_AFTER, self._send, (call,))
            again.daemon = True
            try:
                again.start()
                return
            except RuntimeError:  # there may be no more threads: then this is its end
                pass
        self._to_tell.put((call, request))
        if self._tells_no_more:
            self._tell_rest()

    def _tell_all(self) -> None:
        """The thread that tells futures what was answered, and runs their callbacks."""
        try:
            while self._tell_next():
                pass
        finally:
            self._tells_no_more = True
            self._tell_rest()

    def _tell_next(self) -> bool:
        """On its own, as `_send_next`. Whether there is another one."""
        answered = self._to_tell.get()
        if answered is not None:
            self._finish(*answered, answered[1].error)
        return answered is not None

    def _tell_rest(self) -> None:
        """Tells what the thread that tells has left."""
        with contextlib.suppress(queue.Empty):
            while True:
                answered = self._to_tell.get_nowait()
                if answered is not None:
                    self._finish(*answered, answered[1].error)

    def _finish(self, call: "_Call", request: Any = None, error: Optional[BaseException] = None) -> None:
        """Once for each call: when a connection is lost, whoever sends and whoever reads may both tell it."""
        if not call.ends():
            return
        result, error = (None, error) if error is not None else _outcome_of(request)
        self._telling.add(threading.get_ident())
        try:
            call.future.tell(result, error, self._takes_back)
        except BaseException:  # of a callback, such as `sys.exit`: it ends no other call
            _LOG.exception("a callback of a future has raised")
        finally:
            self._telling.discard(threading.get_ident())
            self._free.release()


def _packed(function: Callable[..., Any], arguments: tuple, named: dict) -> Tuple[bytes, Optional[Exception]]:
    """The input of a call, or why there is none. Not where the future is: the error has a traceback, which would refer to it."""
    try:
        return pack_call(function, arguments, named), None
    except Exception as error:
        return b"", error


def _outcome_of(request: WaitedRequest) -> Tuple[Any, Optional[BaseException]]:
    """What the function of a call has returned, or the exception of its future."""
    try:
        return unpack_result(request.result())
    except BaseException as error:
        return None, _bare(error)


def _bare(error: BaseException) -> BaseException:
    """The error without the functions of this package that it came through: they refer to the input, the output and the future."""
    error.__context__ = None
    return error.with_traceback(None)


class _Future(Future):
    """The future of a call. It counts as running as soon as the call is sent, because nobody says when a worker begins it."""

    def tell(self, result: Any, error: Optional[BaseException], takes_back: bool) -> None:
        """Ends it. One whose call was taken back before a worker had begun it is cancelled."""
        if takes_back and isinstance(error, JobError) and error.outcome == "cancelled":
            with self._condition:  # type: ignore[attr-defined]
                self._state = "PENDING"
            self.cancel()
            self.set_running_or_notify_cancel()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)


class _Call:
    """A call that was submitted."""

    __slots__ = ("future", "data", "_ends")

    def __init__(self, future: _Future, data: bytes) -> None:
        self.future = future
        self.data = data
        self._ends = [True]

    def ends(self) -> bool:
        """Whether it has not ended before. Of several threads that ask, one is told so."""
        try:
            return self._ends.pop()
        except IndexError:
            return False


def _start(initializer: Optional[Callable[..., Any]], initargs: tuple) -> PythonStart:
    """What the workers have to know to find the functions of this program."""
    main = {name: value for name, value in spawn.get_preparation_data("offload").items() if name in _OF_MAIN}
    main["sys_path"] = [os.fspath(place) for place in main["sys_path"] if isinstance(place, (str, os.PathLike))]
    packed = None if initializer is None else base64.b64encode(pickle.dumps((initializer, initargs))).decode()
    return PythonStart({"main": main, "initializer": packed})
