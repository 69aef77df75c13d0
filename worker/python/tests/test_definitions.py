"""What functions say of themselves when they become tasks, and what of it makes no sense."""

import functools
import unittest
from unittest import mock

from offload import TaskError, _serve, _tasks
from offload._payload import from_json
from offload._tasks import Task, task


def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


class Definitions(unittest.TestCase):
    def test_a_function_that_cannot_be_called_with_an_input_is_refused(self):
        for wrong, said in (
            (lambda *, n: n, "keyword only"),
            (lambda *args: args, "nothing but"),
            (lambda **named: named, "nothing but"),
            (lambda *args, **named: args, "nothing but"),
            (lambda a, b, /: a, "positional only"),
        ):
            with self.assertRaises(TypeError) as refused:
                Task(wrong, "wrong")
            self.assertIn(said, str(refused.exception))

    def test_a_function_that_can_be_called_with_an_input_is_a_task(self):
        for sound, expected in (
            (lambda: 1, 1),
            (lambda n: n, {"a": 5}),
            (lambda n, *args, **named: [n, args, named], [{"a": 5}, (), {}]),
            (lambda *, a, b=2: [a, b], [5, 2]),
            (lambda a=1, *, b=2: [a, b], [5, 2]),
        ):
            self.assertEqual(Task(sound, "sound").run(b'{"a":5}', "application/json"), expected)

    def test_an_annotation_that_cannot_be_resolved_costs_no_other(self):
        def size(data, width):
            return {}

        size.__annotations__ = {"data": "int", "width": "Image", "return": "dict"}
        made = Task(size)
        self.assertEqual(made._schema()["properties"], {"data": {"type": "integer"}, "width": {}})
        self.assertEqual(made._produced(), "application/json")
        with self.assertRaises(TaskError):
            made.run(b'{"data": "1", "width": 2}', "application/json")

    def test_a_generator_behind_a_decorator_is_one(self):
        @logged
        def numbers(n):
            yield n

        self.assertTrue(Task(numbers).is_generator)

    def test_a_function_that_is_offered_by_name_keeps_its_options(self):
        with mock.patch.dict(_tasks.registered, clear=True):

            @task(idempotent=True, checkpoints=True)
            def one(_):
                pass

            offered, plain = _serve._offered({"other": one, "plain": lambda n: n}).values()
        self.assertEqual(plain._task[:2], ("plain", False))
        self.assertEqual(offered._task[:5], ("other", True, "cpu", False, True))

    def test_progress_is_promised_within_some_time(self):
        for seconds in (0, -1, float("inf"), float("nan"), 1e9):
            with self.subTest(seconds), self.assertRaises(ValueError):
                Task(logged(print), "t", progress_within=seconds)
        self.assertEqual(Task(lambda n: n, "t", progress_within=0.5)._task.progress_ms, 500)

    def test_a_number_that_is_too_large_is_no_json(self):
        for text in ("1e999", "[-1.5E+309]", "1" + 400 * "0" + ".5", '{"a": 12e0400}'):
            with self.subTest(text[:16]), self.assertRaises(ValueError) as refused:
                from_json(text.encode())
            self.assertIn("too large", str(refused.exception))
        for text in ("1e300", "1e-999", '"1e999"', "1" + 300 * "0"):
            from_json(text.encode())


if __name__ == "__main__":
    unittest.main()
