// What an op asks the heap for once its rule is known: nothing. And what makes a rule known.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "dtensor/ops/cpu/gemm.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/rule_cache.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/sanitized.h"

namespace {

thread_local int64_t mallocs = 0;  // of this thread

}  // namespace

// The C library's own, counted: operator new comes here, too. Sanitizers bring theirs.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void* malloc(size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++mallocs;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, size_t alignment, size_t bytes) {
  ++mallocs;
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? 12 : 0;
}
}
constexpr bool kCounts = true;
#else
constexpr bool kCounts = false;
#endif

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

int64_t mallocs_of(const std::function<void()>& f) {
  for (int i = 0; i < 20; ++i) f();
  const int64_t before = mallocs;
  for (int i = 0; i < 50; ++i) f();
  return mallocs - before;
}

// A product's own, of oneDNN.
int64_t mallocs_of_kernel(const DTensor& x, const DTensor& w) {
  return mallocs_of([&] { cpu::matmul(x.local_tensor(), w.local_tensor()); });
}

void run_on_two(const std::function<void(const DeviceMesh&)>& f) {
  run_ranks(2, [&](comm::Comm& comm) { f(DeviceMesh(comm, {{"d", 2}})); });
}

TEST(SteadyState, CountsMallocs) {
  if (!kCounts) GTEST_SKIP() << "malloc is counted in builds by GCC without a sanitizer";
  std::vector<int>* made = nullptr;
  EXPECT_EQ(mallocs_of([&] {
              made = new std::vector<int>(5);
              delete made;
            }),
            100);
}

TEST(SteadyState, OpsWithoutGradientsAskTheHeapForNothing) {
  if (!kCounts) GTEST_SKIP() << "malloc is counted in builds by GCC without a sanitizer";
  run_on_two([](const DeviceMesh& mesh) {
    const DTensor x = distribute(counted({8, 8}), mesh, {Shard(0)});
    const DTensor y = distribute(counted({8, 8}), mesh, {Shard(0)});
    const DTensor w = distribute(counted({8, 8}), mesh, {Replicate()});
    EXPECT_EQ(mallocs_of([&] { add(x, y); }), 0);
    EXPECT_EQ(mallocs_of([&] { mul(x, y); }), 0);
    EXPECT_EQ(mallocs_of([&] { matmul(x, w); }), mallocs_of_kernel(x, w));
    EXPECT_EQ(mallocs_of([&] { relu(x); }), 0);
    EXPECT_EQ(mallocs_of([&] { reshape(x, {8, 2, 4}); }), 0);
    EXPECT_EQ(mallocs_of([&] { transpose(x); }), 0);
  });
}

TEST(SteadyState, NeitherDoesRecording) {
  if (!kCounts) GTEST_SKIP() << "malloc is counted in builds by GCC without a sanitizer";
  run_on_two([](const DeviceMesh& mesh) {
    const DTensor x = leaf(counted({8, 8}), mesh, {Shard(0)});
    const DTensor y = distribute(counted({8, 8}), mesh, {Shard(0)});
    const DTensor w = distribute(counted({8, 8}), mesh, {Replicate()});
    EXPECT_EQ(mallocs_of([&] { add(x, y); }), 0);
    EXPECT_EQ(mallocs_of([&] { matmul(x, w); }), mallocs_of_kernel(x, w));
    EXPECT_EQ(mallocs_of([&] { relu(x); }), 0);
    EXPECT_EQ(mallocs_of([&] { reshape(x, {8, 2, 4}); }), 0);
  });
}

// Lengths are part of what is looked up only where they matter.
TEST(RuleCache, KnowsARuleForEveryLength) {
  run_on_two([](const DeviceMesh& mesh) {
    auto& cache = Context::current().slot<ops::RuleCache>();
    const DTensor w = distribute(counted({4, 3}), mesh, {Replicate()});
    const auto forward = [&](int64_t length) {
      const DTensor x = distribute(counted({length, 4}), mesh, {Shard(0)});
      const DTensor r = distribute(counted({length, 4}), mesh, {Replicate()});
      EXPECT_EQ(whole(matmul(add(x, r), w)), whole(matmul(add(r, r), w))) << length;
    };
    forward(7);
    const int64_t known = cache.size();
    for (const int64_t length : {1, 2, 8, 0, 31}) forward(length);
    EXPECT_EQ(cache.size(), known);
    const DTensor odd = distribute(counted({5, 4}), mesh, {Shard(0)});
    EXPECT_THROW(add(odd, distribute(counted({6, 4}), mesh, {Shard(0)})), ArgumentError);
    EXPECT_EQ(cache.size(), known);
  });
}

// Cut with unit 2 meets cut plain: alike for 8 (4,4), not for 6 (4,2 against 3,3).
TEST(RuleCache, AsksAgainWhereBoundariesDependOnTheLength) {
  run_on_two([](const DeviceMesh& mesh) {
    const auto sum_of = [&](int64_t n) {
      const DTensor plain = distribute(counted({n}), mesh, {Shard(0)});
      const DTensor units = distribute(counted({n}), mesh, plain.layout().with(0, Shard(0), 2));
      return whole(add(plain, units));
    };
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(sum_of(8), whole(mul(DTensor(counted({8})), 2.0)));
      EXPECT_THROW(sum_of(6), PlacementError);
      EXPECT_EQ(sum_of(4), whole(mul(DTensor(counted({4})), 2.0)));
    }
  });
}

// Every other thing that a rule says is looked up: here what it is linear in.
TEST(RuleCache, TellsRulesOfOneNameApart) {
  run_on_two([](const DeviceMesh& mesh) {
    const DTensor p = partial({{1, 2}, {3, 4}}, {2}, mesh);
    const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
      return ops::Tensors{in[0]};
    };
    const Rule linear{.op = "mine", .letters = "a->a", .linear = {{0}}};
    const Rule other{.op = "mine", .letters = "a->a"};
    EXPECT_TRUE(ops::run1({.rule = linear, .kernel = kernel}, {p}).spec().has_partial());
    EXPECT_THROW(ops::run1({.rule = other, .kernel = kernel}, {p}), PlacementError);
  });
}

}  // namespace
}  // namespace dtensor
