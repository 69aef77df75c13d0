"""Functions that workers of an `Executor` import."""

import ctypes
import os
import time

given = None


def initialize(value):
    global given
    given = value


def get_given():
    return given


def square(n):
    return n * n


def crash(how):
    if how == "abort":
        os.abort()
    ctypes.string_at(0)


def hang():
    time.sleep(3600)


def wait_for(path, said):
    with open(said, "a") as file:
        file.write(f"{os.getpid()}\n")
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def fail(why):
    raise ValueError(why)


class Kept:
    """Something to which there may be weak references."""


def make():
    return Kept()


class Strange(Exception):
    """Cannot be restored from a pickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail_strangely():
    raise Strange("one", "two")


def environment(name):
    return os.environ.get(name)


def process():
    return os.getpid()
