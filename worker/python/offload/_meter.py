"""What an attempt has used: CPU time, exact to a millisecond, and memory.

The CPU time is that of the whole process, and so is the peak of memory, as in `worker/src/usage.rs`.
"""

from __future__ import annotations

import resource
from typing import Tuple

# How old a reading of the process's counters may be, in nanoseconds. To read them takes longer than a tiny job runs.
READING_MAX = 1_000_000


class Meter:
    """Reads the counters when an attempt starts and when it ends, each time only if the last reading is older than `READING_MAX`.

    If both used the same reading, the attempt ran for less than that, and its CPU time is taken to be its run time.
    """

    def __init__(self) -> None:
        self._read_at = -2 * READING_MAX
        self._used = self._before = _counters()
        self._began = 0

    def start(self, now: int) -> None:
        """An attempt starts."""
        self._began = now
        self._before = self._reading(now)

    def stop(self, run_ns: int) -> Tuple[int, int, int]:
        """It has ended after so long. CPU time as user and as system, in microseconds, and the peak of memory in bytes."""
        before, used = self._before, self._reading(self._began + run_ns)
        if used is before:
            return run_ns // 1000, 0, used[2]
        return used[0] - before[0], used[1] - before[1], used[2]

    def _reading(self, now: int) -> Tuple[int, int, int]:
        if now - self._read_at > READING_MAX:
            self._read_at, self._used = now, _counters()
        return self._used


def _counters() -> Tuple[int, int, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime * 1e6), int(used.ru_stime * 1e6), used.ru_maxrss * 1024
