"""A private supervisor: `offload serve` with a socket in a folder of its own, which ends with this program.

```text
 this program                       a thread, as long as the supervisor lives
   | --- start -------------------->| --- fork, prctl(PR_SET_PDEATHSIG), exec ---> offload serve
   |<------------ ready, or why not-|<-------------- {"ready":true,...} -----------|
   | --- SIGTERM, SIGINT ------------------------------------------------------------> ends at once
   |     or the program is killed: its threads are gone ---- the kernel: SIGTERM ----> ends within a second
```

The signal is bound to the thread that forks, so that is one which lives as long as this process. Whether there is a process to
stop is known under a lock:

```text
 starting --- forked ---> running --- stop ---> stopping --- its thread has waited for it ---> ended
    `--- stop ---> stopping: the thread forks no more, or ends what it has forked -------------^
```
"""

from __future__ import annotations

import fcntl
import glob
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _messages as messages
from ._address import GREETING_TIMEOUT
from ._connection import ask_apart
from ._errors import NoSupervisor
from ._turns import Waiter

_PREFIX = "offload-pool-"
_SOCKET = "offload.sock"
# The path of a socket has at most 107 bytes.
_FOLDER_MAX = 80
# How long a supervisor and its first worker have to start.
START_PATIENCE = 60.0
# A forked child asks so often whether it has.
ASK_AGAIN = 0.05
_STOP_PATIENCE = 5.0
_STARTING, _RUNNING, _STOPPING, _ENDED = "starting", "running", "stopping", "ended"
# A folder without a supervisor may be about to get one. After so many seconds it is not. The first number is for one whose program
# is not seen, which may live in another PID namespace.
_ABANDONED_AFTER_ITS_PROGRAM = 10
_ABANDONED_AFTER = 600

# Becomes the supervisor, with a signal for the case that the program ends without a word.
_SHIM = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_binary() -> str:
    """The program `offload`: `$OFFLOAD_BIN`, the one that was installed with this package, or one in `PATH`."""
    named = os.environ.get("OFFLOAD_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise NoSupervisor(f"OFFLOAD_BIN names {named}, which is no program")
        return named
    scripts = {sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")}
    installed = (os.path.join(folder, "offload") for folder in scripts if folder)
    found = next((path for path in installed if os.access(path, os.X_OK)), None) or shutil.which("offload")
    if found is None:
        raise NoSupervisor("the program `offload` is not installed beside Python and not in PATH; name it with OFFLOAD_BIN")
    return found


class PrivateSupervisor:
    """One process `offload serve`."""

    def __init__(self, log: Any = None) -> None:
        """`log` as `subprocess.Popen` takes `stderr`. Raises `ValueError` for a descriptor that is not open."""
        # A copy: the process is started later, when the program may have closed the log and given its number to another file.
        self._log = _copy_of(log)
        self.folder = _make_folder()
        self.socket = os.path.join(self.folder, _SOCKET)
        self.process: Optional[subprocess.Popen] = None
        self._program = os.getpid()
        # The collector of garbage may stop a pool in the middle of any line, also of one that holds the lock.
        self._lock = threading.RLock()
        self._state = _STARTING
        self._thread: Optional[threading.Thread] = None
        # Whether it is known that a worker is ready, or that none gets ready; who waits for that, or for the end of the process.
        self._is_told = False
        self._waiters: List[Waiter] = []
        self._to_tell: List[Callable[[], Any]] = []
        self._ready: Optional[dict] = None
        self._failure = ""

    def write_file(self, name: str, content: Any) -> str:
        """A file in the private folder with a JSON document, for the workers. Returns its path."""
        path = os.path.join(self.folder, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return path

    def start(self, worker: Sequence[str], workers: Optional[int], arguments: Sequence[str]) -> None:
        """Starts it, and does not wait for it. Raises `NoSupervisor` if the program `offload` is not there."""
        command = [find_binary(), "serve", "--json", "--fail-fast", "--socket", self.socket, "--drain-timeout", "1s"]
        command += ["--worker", " ".join(map(shlex.quote, worker))]
        command += [] if workers is None else ["--workers", str(workers)]
        if not any(argument.split("=")[0] == "--hello-timeout" for argument in arguments):
            # What a worker imports may take long. Less than whoever made the pool waits, who then hears the reason.
            command += ["--hello-timeout", f"{START_PATIENCE - 10:.0f}s"]
        command += arguments
        thread = threading.Thread(target=self._keep, args=(command,), name="offload supervisor", daemon=True)
        thread.start()
        self._thread = thread

    def is_ready(self) -> bool:
        """Whether a worker has been ready."""
        if self._ready is None and not self.is_ours():
            self._ask_whether_ready()
        return self._ready is not None

    def is_ours(self) -> bool:
        """Whether this process has started it. A forked child has not, and has no thread that hears when it is ready."""
        return os.getpid() == self._program

    def _ask_whether_ready(self) -> None:
        if not os.path.isdir(self.folder):
            self._failure = "the program that has started it has ended it"
            self._is_told = True
            return
        try:
            show = lambda ticket: messages.TO_SUPERVISOR.encode(messages.Show(ticket, "tasks"))  # noqa: E731
            (tasks,) = ask_apart(self.socket, "", [show], GREETING_TIMEOUT)
        except NoSupervisor:
            return
        if json.loads(tasks.output or b"[]"):
            self._ready = {}

    def is_known(self) -> bool:
        """Whether it is known that a worker is ready, or that none gets ready."""
        return self.is_ready() or self._is_told

    def wait_until_ready(self) -> None:
        """Returns when a worker is ready. Raises `NoSupervisor` with the reason if none gets ready in `START_PATIENCE`."""
        if self._ready is not None:
            return
        if self.is_ours():
            self._wait(lambda: self._is_told, START_PATIENCE)
        else:
            end = time.monotonic() + START_PATIENCE
            while not self.is_known() and time.monotonic() < end:
                time.sleep(ASK_AGAIN)
        self.check_ready()

    def _wait(self, is_there: Callable[[], bool], seconds: float) -> None:
        """Returns when `is_there()`, or after so many seconds. Takes no lock: a signal handler may wait for the same."""
        end = time.monotonic() + seconds
        me = Waiter()
        try:
            self._waiters.append(me)
            while not is_there() and time.monotonic() < end:
                me.sleep(end)
        finally:
            if me in self._waiters:
                self._waiters.remove(me)

    def _wake_all(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.wake()

    def check_ready(self) -> None:
        """Raises `NoSupervisor` with the reason if no worker has been ready. For those who do not wait any longer."""
        if self._ready is None:
            reason = self._failure if self._is_told else f"no worker was ready within {START_PATIENCE:.0f} s"
            raise NoSupervisor(f"the private supervisor has not started: {reason}")

    def when_known(self, tell: Callable[[], Any]) -> None:
        """Calls `tell` once it is known whether a worker is ready: at once, or later from another thread."""
        with self._lock:
            if not self._is_told:
                self._to_tell.append(tell)
                return
        tell()

    def _is_known(self) -> None:
        with self._lock:
            self._is_told = True
            to_tell, self._to_tell = self._to_tell, []
        self._wake_all()
        for tell in to_tell:
            tell()

    def stop(self) -> None:
        """Ends it at once, with its workers. Does nothing in a forked child."""
        if not self.is_ours():
            return
        with self._lock:
            if self._state != _ENDED:
                self._state = _STOPPING
            self._end_process()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._wait(self._has_ended, _STOP_PATIENCE)
            if not self._has_ended() and self.process is not None:
                self.process.kill()
                self._wait(self._has_ended, _STOP_PATIENCE)
        if thread is None:
            self._close_log()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _has_ended(self) -> bool:
        return self._state == _ENDED

    def _end_process(self) -> None:
        """Tells it to end, if there is one. The lock is held."""
        if self.process is not None:
            # The second signal is another one, so that it is not merged with the first. It ends the supervisor at once.
            for number in (signal.SIGTERM, signal.SIGINT):
                self.process.send_signal(number)

    def _keep(self, command: List[str]) -> None:
        """The thread: starts the process, and waits for its end."""
        try:
            process = self._fork(command)
            if process is None:
                self._failure = "it was stopped before"
                return
            with process.stdout as lines:
                for line in lines:
                    self._hear(line)
            code = process.wait()
            self._failure = self._failure or f"`{os.path.basename(command[0])} serve` has ended with exit code {code}"
        except OSError as error:
            self._failure = f"cannot start {command[0]}: {error}"
        except Exception as error:
            self._failure = f"cannot start or hear {command[0]}: {error!r}"
            self._end_unheard()
        finally:
            self._close_log()
            with self._lock:
                self._state = _ENDED
            self._is_known()

    def _close_log(self) -> None:
        if isinstance(self._log, io.FileIO):
            self._log.close()

    def _end_unheard(self) -> None:
        with self._lock:
            self._end_process()
        if self.process is not None:
            self.process.wait()

    def _fork(self, command: List[str]) -> Any:
        """Starts the process, unless it is not wanted any more."""
        if self._state == _STOPPING:
            return None
        process = subprocess.Popen(
            _with_shim(command, self._program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the program, which decides what becomes of its jobs
            env=_environment(),
        )
        with self._lock:
            self.process = process
            if self._state == _STOPPING:
                self._end_process()
            else:
                self._state = _RUNNING
        return process

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        if "error" in said:
            self._failure = said["error"]["message"]
        elif said.get("ready"):
            self._ready = said
            self._is_known()


def _copy_of(log: Any) -> Any:
    """Where the log goes, as long as this copy is open: that of a file or descriptor, and nothing else has one."""
    if log is None or log == subprocess.DEVNULL:
        return log
    try:
        return io.FileIO(os.dup(log if isinstance(log, int) else log.fileno()), "w")
    except OSError as error:
        raise ValueError(f"log: {log!r} cannot be written to: {error}") from None


def _with_shim(command: List[str], program: int) -> List[str]:
    if not sys.executable:  # Python is embedded: whoever does that has to stop the pool
        return command
    return [sys.executable, "-I", "-S", "-c", _SHIM, str(program), *command]


def _environment() -> Dict[str, str]:
    """That of this program without the settings for another supervisor, and without the configuration file of the user."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_")}
    return {**others, "OFFLOAD_CONFIG": "/dev/null"}


def _make_folder() -> str:
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    usable = [place for place in places if os.path.isabs(place) and os.access(place, os.W_OK) and len(place) < _FOLDER_MAX]
    if not usable:
        raise NoSupervisor("there is no folder for the socket of a private supervisor: set TMPDIR to a short path")
    _remove_abandoned(usable[0])
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=usable[0])


def _remove_abandoned(place: str) -> None:
    """Removes what programs that were killed have left: folders whose supervisor does not hold its lock any more."""
    for folder in glob.glob(os.path.join(glob.escape(place), _PREFIX + "*")):
        try:
            about = os.stat(folder)
            patience = _ABANDONED_AFTER if _is_program_there(folder) else _ABANDONED_AFTER_ITS_PROGRAM
            if about.st_uid == os.geteuid() and time.time() - about.st_mtime > patience and _is_unlocked(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass


def _is_program_there(folder: str) -> bool:
    """Whether the process lives that has made the folder, as far as its name tells."""
    number = os.path.basename(folder)[len(_PREFIX) :].split("-")[0]
    return not number.isdigit() or os.path.exists(f"/proc/{number}")


def _is_unlocked(folder: str) -> bool:
    try:
        with open(os.path.join(folder, _SOCKET + ".lock"), "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
