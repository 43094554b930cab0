"""unittest.main as a program: it trains in a test, one of which fails."""

import unittest

from tiny import digest, train


class Trains(unittest.TestCase):
    def test_that_works(self):
        digest(train())

    def test_that_fails(self):
        self.assertEqual(1, 2)


if __name__ == "__main__":
    unittest.main()
