"""What an attempt has used, as far as it is known without asking the system for each tiny job."""

import time
import unittest

from offload import _meter
from offload._meter import READING_MAX, Meter


class Meters(unittest.TestCase):
    def setUp(self):
        self.asked = 0
        before = _meter._counters
        self.addCleanup(setattr, _meter, "_counters", before)

        def counters():
            self.asked += 1
            return before()

        _meter._counters = counters
        self.meter = Meter()
        self.asked = 0

    def test_a_job_that_computes_for_long_is_measured(self):
        began = time.perf_counter_ns()
        self.meter.start(began)
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        user, system, peak = self.meter.stop(time.perf_counter_ns() - began)
        self.assertGreaterEqual(user + system, 45_000)
        self.assertGreater(peak, 1 << 20)

    def test_a_job_that_sleeps_uses_next_to_nothing(self):
        self.meter.start(0)
        user, system, _ = self.meter.stop(1000 * READING_MAX)
        self.assertLess(user + system, 1_000_000, "it ran for a second by the clock of this test")

    def test_tiny_jobs_are_not_asked_for_one_by_one(self):
        for number in range(100):
            self.meter.start(number * READING_MAX // 100)
            self.assertEqual(self.meter.stop(5000)[:2], (5, 0), "as long as it ran")
        self.assertEqual(self.asked, 1)


if __name__ == "__main__":
    unittest.main()
