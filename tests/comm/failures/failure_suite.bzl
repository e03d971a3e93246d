"""failure_suite: the failure suite over one backend, 24 seeds, and 200 by hand."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def failure_suite(name, comm, tags = [], **kwargs):
    """Tests `name` and `name`_long; `comm` is a scheme, or a comm URL without rank and size."""
    for suffix, seeds, more in [("", "24", []), ("_long", "200", ["long", "manual"])]:
        cc_test(
            name = name + suffix,
            srcs = ["failure_suite_test.cc"],
            data = [":faulty_rank"],
            env = {
                "DTENSOR_TEST_COMM": comm,
                "DTENSOR_TEST_SEEDS": seeds,
            },
            tags = tags + more,
            timeout = "eternal" if suffix else "moderate",
            deps = [
                ":scenario",
                "//comm:socket",
                "//tests/support:sanitized",
                "//tests/support:subprocess",
                "@gtest//:gtest",
                "@gtest//:gtest_main",
            ],
            **kwargs
        )
