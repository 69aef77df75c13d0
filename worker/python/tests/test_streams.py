"""Outputs in parts, from programs without an event loop."""

import unittest

from offload import JobError, Rejected

from .test_client import WithPool
from .workers import eventually


class Streams(WithPool):
    def test_the_parts_of_an_output_come_one_by_one(self):
        self.assertEqual(b"".join(self.pool.stream("count", 1000)), b"".join(b"%d\n" % n for n in range(1000)))
        self.assertEqual(self.pool.call("count", 3), "0\n1\n2\n", "a call gets all of them together")

    def test_a_reader_that_is_slow_makes_the_task_wait_and_nobody_else(self):
        parts = self.pool.stream("flood", 1000)
        self.assertEqual(next(parts), b"x" * 65536)
        self.assertEqual(self.pool.call("square", 4), 16)
        self.assertEqual(self.pool.status()["jobs"]["running"], 1, "64 MB do not fit on the way, so the task has not ended")
        self.assertEqual(sum(map(len, parts)), 999 * 65536)

    def test_an_error_comes_after_the_parts(self):
        received = []
        with self.assertRaises(JobError) as failed:
            for part in self.pool.stream("count", 2, metadata={"fail": "yes"}):
                received.append(part)
        self.assertEqual((received, failed.exception.message), ([b"0\n", b"1\n"], "after the last one"))

    def test_who_stops_reading_cancels_the_job(self):
        parts = self.pool.stream("flood", 100_000)
        next(parts)
        parts.close()
        eventually(lambda: self.pool.status()["jobs"]["running"] == 0, "the end of the job")

    def test_who_is_interrupted_while_reading_cancels_the_job(self):
        with self.interrupted_when_it_runs():
            next(self.pool.stream("wait", str(self.file)))
        self.assertTrue(self.file.exists())
        eventually(lambda: self.pool.status()["jobs"]["running"] == 0, "the end of the job")

    def test_a_task_that_is_not_there_is_rejected(self):
        with self.assertRaises(Rejected):
            next(self.pool.stream("no-such-task", 1))


if __name__ == "__main__":
    unittest.main()
