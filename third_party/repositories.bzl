"""dtensor_repositories(): every external repository that dtensor's targets use.

A consumer's WORKSPACE calls it once; repositories that no built target needs are never fetched.
"""

load("//third_party:shims.bzl", "coverage_tools_shim", "rules_cc_shim")
load("//third_party:system_library.bzl", "cuda_configure", "system_library")

_INCLUDE = "/usr/include/"

def _same(*names):
    return {n: _INCLUDE + n for n in names}

def _system_libraries():
    system_library(
        name = "gtest",
        apt = "libgtest-dev libgmock-dev",
        headers = _same("gtest", "gmock"),
        targets = {
            "gtest": ["gtest", "-pthread"],
            "gtest_main": ["gtest_main", "gtest", "-pthread"],
            "gmock": ["gmock", "gtest", "-pthread"],
        },
    )
    system_library(
        name = "benchmark",
        apt = "libbenchmark-dev",
        headers = _same("benchmark"),
        targets = {
            "benchmark": ["benchmark", "-pthread"],
            "benchmark_main": ["benchmark_main", "benchmark", "-pthread"],
        },
    )
    system_library(
        name = "gloo",
        apt = "libgloo-dev",
        headers = _same("gloo", "hiredis"),
        targets = {"gloo": ["gloo", "-pthread"]},
    )
    system_library(
        name = "boost",
        apt = "libboost-dev libboost-program-options-dev",
        headers = _same("boost"),
        targets = {"boost": [], "program_options": ["boost_program_options"]},
    )
    system_library(
        name = "dnnl",
        apt = "libdnnl-dev",
        headers = _same("dnnl.h", "dnnl.hpp", "oneapi", "dnnl_types.h", "dnnl_config.h", "dnnl_version.h"),
        targets = {"dnnl": ["dnnl"]},
    )
    system_library(
        name = "isal",
        apt = "libisal-dev",
        headers = _same("isa-l.h", "isa-l"),
        targets = {"isal": ["isal"]},
    )
    # Part of its headers is in the folder of the architecture, where every compiler looks.
    system_library(
        name = "openssl",
        apt = "libssl-dev",
        headers = _same("openssl"),
        targets = {"crypto": ["crypto"]},
    )
    system_library(
        name = "nlohmann_json",
        apt = "nlohmann-json3-dev",
        headers = _same("nlohmann"),
        targets = {"nlohmann_json": []},
    )
    system_library(
        name = "fmt",
        apt = "libfmt-dev",
        headers = _same("fmt"),
        targets = {"fmt": ["fmt"]},
    )
    system_library(
        name = "spdlog",
        apt = "libspdlog-dev",
        headers = _same("spdlog", "fmt"),
        targets = {"spdlog": ["spdlog", "fmt", "-pthread"]},
    )
    system_library(
        name = "ucx",
        apt = "libucx-dev",
        headers = _same("ucp", "ucs", "uct"),
        targets = {"ucx": ["ucp", "ucs"]},
        optional = True,
    )

def dtensor_repositories():
    rules_cc_shim(name = "rules_cc")
    coverage_tools_shim(name = "remote_coverage_tools")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
    _system_libraries()
    cuda_configure(name = "cuda")
