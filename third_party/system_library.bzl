"""Libraries installed by apt, and CUDA, as Bazel repositories."""

_LIB_DIRS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"]

def _has_library(rctx, name):
    for d in _LIB_DIRS:
        if rctx.path(d + "/lib" + name + ".so").exists or rctx.path(d + "/lib" + name + ".a").exists:
            return True
    return False

def _system_library_impl(rctx):
    missing = []
    for dst, src in rctx.attr.headers.items():
        path = rctx.path(src)
        if path.exists:
            rctx.symlink(path, "include/" + dst)
        else:
            missing.append(src)
    for libs in rctx.attr.targets.values():
        missing += ["lib" + l + ".so" for l in libs if not l.startswith("-") and not _has_library(rctx, l)]
    rctx.file("defs.bzl", "FOUND = %r\n" % (not missing))
    if missing and rctx.attr.optional:
        # Targets that need it are incompatible by FOUND.
        names = {rctx.name: None}
        names.update(rctx.attr.targets)
        rctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n" +
                           "".join(["cc_library(name = %r)\n" % n for n in names]))
        return
    if missing:
        fail("@%s: missing %s; run: apt-get install %s" % (rctx.name, ", ".join(missing), rctx.attr.apt))

    out = ["package(default_visibility = [\"//visibility:public\"])"]
    out.append("cc_library(name = \"headers\", hdrs = glob([\"include/**\"]), includes = [\"include\"])")
    for target, libs in rctx.attr.targets.items():
        opts = [l if l.startswith("-") else "-l" + l for l in libs]
        # The headers stand again in `hdrs`, so that layering_check lets one include them.
        out.append("cc_library(name = %r, hdrs = glob([\"include/**\"]), deps = [\":headers\"], linkopts = %r)" % (target, opts))
    if rctx.name not in rctx.attr.targets:
        out.append("alias(name = %r, actual = %r)" % (rctx.name, rctx.attr.targets.keys()[0]))
    rctx.file("BUILD", "\n".join(out) + "\n")

system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "headers": attr.string_dict(doc = "path under include/ -> file or folder of the system"),
        "targets": attr.string_list_dict(mandatory = True, doc = "target -> libraries and link flags"),
        "apt": attr.string(mandatory = True, doc = "the packages to install"),
        "optional": attr.bool(doc = "where it is missing, defs.bzl has FOUND = False, and no error"),
    },
)

_CUDA_BUILD = """
cc_library(name = "headers", hdrs = glob(["include/**"]), includes = ["include"])
cc_library(name = "cudart", deps = [":headers"], linkopts = ["-L{h}/lib64", "-lcudart", "-Wl,-rpath,{h}/lib64"])
cc_library(name = "cublas", deps = [":cudart"], linkopts = ["-lcublas"])
cc_library(name = "nccl", deps = [":cudart"], linkopts = ["-lnccl"])
"""

def _cuda_impl(rctx):
    home = rctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nccl = [home + "/include/nccl.h", "/usr/include/nccl.h"]
    found = rctx.path(home + "/bin/nvcc").exists and any([rctx.path(h).exists for h in nccl])
    if found:
        for d in ["bin", "include", "lib64", "nvvm"]:
            rctx.symlink(home + "/" + d, d)
    rctx.file("defs.bzl", "CUDA_FOUND = %r\nCUDA_HOME = %r\n" % (found, home))
    build = "package(default_visibility = [\"//visibility:public\"])\n"
    if found:
        build += _CUDA_BUILD.format(h = home)
    else:
        build += "[cc_library(name = n) for n in [\"headers\", \"cudart\", \"cublas\", \"nccl\"]]\n"
    rctx.file("BUILD", build)

cuda_configure = repository_rule(implementation = _cuda_impl, local = True, environ = ["CUDA_HOME"])
