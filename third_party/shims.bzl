"""Stand-ins for two repositories that Bazel 4 wants and an offline machine has not."""

_RULES_CC = """
def cc_library(**a): native.cc_library(**a)
def cc_binary(**a): native.cc_binary(**a)
def cc_test(**a): native.cc_test(**a)
def cc_import(**a): native.cc_import(**a)
def cc_toolchain(**a): native.cc_toolchain(**a)
def cc_toolchain_suite(**a): native.cc_toolchain_suite(**a)
cc_flags_supplier = None
compiler_flag = None
"""

def _rules_cc_impl(rctx):
    rctx.file("BUILD", "")
    rctx.file("cc/BUILD", "")
    rctx.file("cc/defs.bzl", _RULES_CC)

rules_cc_shim = repository_rule(implementation = _rules_cc_impl)

def _coverage_tools_impl(rctx):
    rctx.file("c.sh", "#!/bin/sh\nexit 0\n", executable = True)
    rctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
sh_binary(name = "coverage_report_generator", srcs = ["c.sh"])
sh_binary(name = "lcov_merger", srcs = ["c.sh"])
""")

coverage_tools_shim = repository_rule(implementation = _coverage_tools_impl)
