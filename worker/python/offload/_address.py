"""Where the supervisor is."""

from __future__ import annotations

import os
import socket
import struct
import time

from ._errors import NoSupervisor

GREETING_TIMEOUT = 5.0
# So many seconds after a supervisor accepted nobody it is tried again.
AGAIN = 0.02


def default_socket() -> str:
    """The path that the command line uses, too. Raises `NoSupervisor` if there is no place for it."""
    named = os.environ.get("OFFLOAD_SOCKET")
    if named:
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    of_user = f"/run/user/{os.getuid()}"
    home = os.environ.get("HOME", "")
    if os.path.isabs(runtime):
        return f"{runtime}/offload/offload.sock"
    if os.path.isdir(of_user):
        return f"{of_user}/offload/offload.sock"
    if os.path.isabs(home):
        return f"{home}/.offload/offload.sock"
    raise NoSupervisor("no place for the socket: neither XDG_RUNTIME_DIR nor HOME is set; name one: Client(socket=PATH)")


class AcceptsNobody(NoSupervisor):
    """A supervisor is there, and too many connections wait for it. Within this package: it may be tried again."""


def connect(path: str) -> socket.socket:
    """A connection to the supervisor at `path`, which has to run as the same user. Raises `NoSupervisor`."""
    end = time.monotonic() + GREETING_TIMEOUT
    while True:
        try:
            return connect_now(path)
        except AcceptsNobody:
            if time.monotonic() > end:
                raise
        time.sleep(AGAIN)


def connect_now(path: str) -> socket.socket:
    """As `connect`, and does not wait. Raises `AcceptsNobody` if it would have to."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.settimeout(GREETING_TIMEOUT)
        end.connect(path)
        user = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if user != os.geteuid():
            raise NoSupervisor(f"another user listens at {path}")
        return end
    except (FileNotFoundError, ConnectionRefusedError):
        end.close()
        raise NoSupervisor(f"no supervisor at {path}; start one with `offload serve`, or use `Pool`") from None
    except (socket.timeout, BlockingIOError):  # the second, whatever the time limit, because the socket is a local one
        end.close()
        reason = f"it accepts nobody within {GREETING_TIMEOUT:.0f} s"
        raise AcceptsNobody(f"cannot connect to the supervisor at {path}: {reason}") from None
    except OSError as error:
        end.close()
        raise NoSupervisor(f"cannot connect to the supervisor at {path}: {error.strerror or error}") from None
    except BaseException:
        end.close()
        raise
