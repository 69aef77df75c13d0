"""The package has the version of the project."""

import pathlib
import re
import unittest

import offload

MANIFEST = pathlib.Path(__file__).parents[3] / "Cargo.toml"


class Version(unittest.TestCase):
    @unittest.skipUnless(MANIFEST.exists(), "this is not a checkout of the project")
    def test_it_is_that_of_the_manifest(self):
        (version,) = re.findall(r'^version = "(.*)"$', MANIFEST.read_text(), re.MULTILINE)
        self.assertEqual(offload.__version__, version)


if __name__ == "__main__":
    unittest.main()
