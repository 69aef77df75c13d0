"""Run CPU-heavy or crash-prone functions in worker processes that may crash, hang or be killed.

    from offload import task, serve          # worker.py

    @task
    def double(n: int) -> int:
        return 2 * n

    serve()
"""

from ._async_client import AsyncClient
from ._client import Client, Job
from ._context import cancelled, checkpoint, job, progress, resumed
from ._errors import ConnectionLost, JobError, NoSupervisor, OffloadError, OutputError, Rejected, TaskError
from ._executor import Executor
from ._payload import Payload
from ._pool import Pool
from ._serve import serve
from ._tasks import setup, task
from ._version import VERSION as __version__

__all__ = [
    "AsyncClient",
    "Client",
    "ConnectionLost",
    "Executor",
    "Job",
    "JobError",
    "NoSupervisor",
    "OffloadError",
    "OutputError",
    "Payload",
    "Pool",
    "Rejected",
    "TaskError",
    "__version__",
    "cancelled",
    "checkpoint",
    "job",
    "progress",
    "resumed",
    "serve",
    "setup",
    "task",
]
