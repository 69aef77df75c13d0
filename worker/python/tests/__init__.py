"""The tests of the package. A run that hangs ends, and says where it is: each wait has an end, but for those that no test expects."""

import faulthandler
import os
import signal

# For a whole run, in seconds: several times what one takes on a busy machine.
_DEADLINE = 1500
# For a child that a test forks. It has no thread that looks after the deadline of the run.
_DEADLINE_OF_CHILD = 120

faulthandler.dump_traceback_later(_DEADLINE, exit=True)
# Whoever ends a run sooner wants to know as well where it was.
faulthandler.register(signal.SIGTERM, chain=True)
os.register_at_fork(after_in_child=lambda: signal.alarm(_DEADLINE_OF_CHILD))
