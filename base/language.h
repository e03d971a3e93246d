// Stops with a readable message where the compiler is not in C++20.

#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "dtensor needs C++20: pass -std=c++20 (Bazel: build --cxxopt=-std=c++20 in .bazelrc)"
#endif
