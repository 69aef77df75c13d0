//! What the test suites of libuv and Node check, as far as it applies here.
