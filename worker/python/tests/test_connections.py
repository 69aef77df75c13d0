"""One connection that threads and forked children share: whose a request is when it ends."""

import unittest
from unittest import mock

from .test_client import WithPool


class Retries(WithPool):
    def test_a_call_that_goes_over_another_connection_is_not_ended_by_the_one_before(self):
        """Whoever reads has noticed the end, and has told nobody yet when the call goes on; then it tells, or the client does."""
        for tells_first in (True, False):
            before = self.pool.connection()
            ask = before._dialogue.ask

            def ask_and_end(*arguments, before=before, ask=ask):
                start = ask(*arguments)
                before._is_lost = True
                return start

            before._dialogue.ask = ask_and_end
            with mock.patch.object(before, "close", before.close if tells_first else mock.Mock()):
                job = self.pool.submit("wait", str(self.file))
                self.running()
            before.close()
            self.assertFalse(job.done(), "the end of the connection before is not that of the job")
            self.file.unlink()
            self.assertIsNone(job.result())
            self.assertIsNot(self.pool.connection(), before)


if __name__ == "__main__":
    unittest.main()
