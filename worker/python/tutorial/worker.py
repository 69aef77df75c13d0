"""A worker with one task: it unpacks pictures with a library that is written in C."""

import ctypes
import pathlib

from offload import serve, setup, task


@setup
def load():
    global library
    library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("runs.so")))
    library.unpack.restype = ctypes.c_size_t


@task
def unpack(runs: bytes) -> bytes:
    "unpacks a picture of at most 65,536 pixels"
    pixels = ctypes.create_string_buffer(65536)
    return pixels.raw[: library.unpack(runs, ctypes.c_size_t(len(runs)), pixels)]


serve()
