"""Tests as users of pytest write them: a pool as a fixture, captured output, functions of a test file in an executor.

`tests/python` runs them with pytest; the package itself is tested without it.
"""

import os

import pytest

from offload import Executor, JobError, Pool


@pytest.fixture(scope="module")
def pool():
    with Pool(workers=1) as pool:
        yield pool


def test_a_pool_is_a_fixture(pool, capsys):
    assert pool.call("primes", "100")["count"] == 25
    print("what a test prints is still its own")
    assert capsys.readouterr().out == "what a test prints is still its own\n"


def double(number):
    return 2 * number


def crash(_):
    os.abort()


def test_functions_of_a_test_file_run_in_workers(capfd):
    with Executor(max_workers=1) as executor:
        assert list(executor.map(double, [1, 2])) == [2, 4]
        with pytest.raises(JobError) as failed:
            executor.submit(crash, 1).result()
    assert failed.value.signal == 6
