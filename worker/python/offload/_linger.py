"""Whether a worker looks for its next job for a short while before it goes to sleep: the rule of `worker/src/linger.rs`.

It looks only after a job that came alone. After it has looked in vain it sleeps at once the next time, after the second time in a row
the next 3 times, then 7, and so on.
"""

from __future__ import annotations

# For how long to look, in seconds: about as long as a wake-up takes on a virtual machine.
LINGER = 50e-6
_SLEEPS_MAX = 4095


class Linger:
    """What looking has brought so far."""

    def __init__(self) -> None:
        self._was_alone = False
        self._sleeps = 0
        self._next = 0

    def begins(self) -> bool:
        """A wait begins. Whether to look first."""
        if not self._was_alone:
            return False
        if self._sleeps:
            self._sleeps -= 1
            return False
        return True

    def looked(self, has_found: bool) -> None:
        """What came of looking."""
        self._next = 0 if has_found else min(2 * self._next + 1, _SLEEPS_MAX)
        self._sleeps = self._next

    def came(self, jobs: int) -> None:
        """The wait has brought so many jobs."""
        self._was_alone = jobs == 1
