// The ledger of a small program: a column-cut and a row-cut product, forward and backward.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/policy.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

Floats values(const DTensor& t) { return full(t).to_vector<float>(); }

struct Line {
  std::string kind;
  std::string op;
  std::string of;
  std::string from;
  std::string to;
  int64_t payload_bytes = 0;
  int64_t wire_bytes = 0;
  Cause cause = Cause::kExplicit;
  bool has_site = false;
  friend bool operator==(const Line&, const Line&) = default;
};
std::ostream& operator<<(std::ostream& out, const Line& l) {
  return out << l.kind << " " << l.op << " of '" << l.of << "' " << l.from << " -> " << l.to << " "
             << l.payload_bytes << " " << l.wire_bytes << " " << name_of(l.cause) << " "
             << l.has_site;
}

std::vector<Line> lines(const Ledger& ledger) {
  std::vector<Line> all;
  for (const LedgerEntry& e : ledger.entries()) {
    all.push_back({std::string(name_of(e.kind)), e.op, e.of, to_string(e.from.placement(0)),
                   to_string(e.to.placement(0)), e.payload_bytes, e.wire_bytes, e.cause,
                   std::string(e.site.file).find("program_ledger_test") != std::string::npos &&
                       e.site.line > 0});
  }
  return all;
}

// pytorch#167655, pytorch#188946: each collective once, with who asked; nothing besides.
TEST(ProgramLedger, HasEveryCollectiveOnceAndTheBytesOfTheComm) {
  for (const bool automatic : {false, true}) {
    std::vector<int64_t> sent(2);
    run_ranks(2, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"tp", 2}});
      const PolicyScope policy(automatic ? RedistributePolicy::kAuto : RedistributePolicy::kError);
      DTensor x = distribute(Tensor::of<float>({1, 2}, {1, 2}), mesh, {});
      DTensor w1 =
          distribute(Tensor::of<float>({1, 0, 0, 1, 1, 1, 2, 1, 1, 2}, {5, 2}), mesh, {Shard(0)});
      DTensor w2 =
          distribute(Tensor::of<float>({1, 1, 1, 1, 1, 1, -1, 1, -1, 1}, {2, 5}), mesh, {Shard(1)});
      DTensor bias = distribute(Tensor::of<float>({100, 200}, {2}), mesh, {});
      for (DTensor* t : {&x, &w1, &w2, &bias}) t->set_requires_grad(true);
      Ledger& ledger = Context::current().slot<Ledger>();
      ledger.clear();

      const DTensor hidden = matmul(x, transpose(w1));
      const DTensor product = matmul(hidden, transpose(w2));
      EXPECT_EQ(product.local_tensor().to_vector<float>(),
                comm.rank() == 0 ? (Floats{6, 2}) : (Floats{9, 1}));
      // Under kAuto an op that is not linear has it reduced; all values are positive.
      const DTensor y = add(automatic ? relu(product) : redistribute(product, {Replicate()}), bias);
      sum(y).backward();
      const int64_t bytes = comm.counters().payload_bytes_sent;
      sent[static_cast<size_t>(comm.rank())] = bytes;

      const std::vector<Line> want{
          automatic ? Line{"all_reduce", "automatic move", "relu", "P(sum)", "R", 16, 16,
                           Cause::kAutomatic, true}
                    : Line{"all_reduce", "redistribute", "", "P(sum)", "R", 16, 16,
                           Cause::kExplicit, true},
          {"all_reduce", "leaf", "leaf", "P(sum)", "R", 16, 16, Cause::kAdjoint, true}};
      EXPECT_EQ(lines(ledger), want) << (automatic ? "kAuto" : "default");
      EXPECT_EQ(ledger.payload_bytes(), 32);

      EXPECT_EQ(values(y), (Floats{115, 203}));
      EXPECT_EQ(values(x.grad()), (Floats{6, 6}));
      EXPECT_EQ(values(bias.grad()), (Floats{1, 1}));
      EXPECT_EQ(values(w2.grad()), (Floats{1, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
    });
    EXPECT_EQ(sent[0] + sent[1], 32) << "as counted at the Comm";
  }
}

}  // namespace
}  // namespace dtensor
