"""Where the supervisor is."""

from __future__ import annotations

import os
import socket
import struct
from typing import Optional

from ._errors import NoSupervisor

GREETING_TIMEOUT = 5.0


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


def connect(path: str) -> socket.socket:
    """A connection to the supervisor at `path`, which has to run as the same user. Raises `NoSupervisor`."""
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
    except OSError as error:
        end.close()
        raise NoSupervisor(f"cannot connect to the supervisor at {path}: {_reason(error)}") from None
    except BaseException:
        end.close()
        raise


def _reason(error: OSError) -> Optional[str]:
    if isinstance(error, (socket.timeout, BlockingIOError)):
        return f"it accepts nobody within {GREETING_TIMEOUT:.0f} s"
    return error.strerror or str(error)
