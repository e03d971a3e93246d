#include "dtensor/placement/placement.h"

#include <array>

#include "dtensor/base/text_cursor.h"

namespace dtensor {
namespace {

constexpr std::array<std::string_view, 4> kOps = {"sum", "min", "max", "prod"};

}  // namespace

std::string_view name_of(PartialOp op) { return kOps[static_cast<size_t>(op)]; }

std::string to_string(Placement placement) {
  switch (placement.kind()) {
    case Placement::Kind::kReplicate:
      return "R";
    case Placement::Kind::kShard:
      return "S(" + std::to_string(placement.dim()) + ")";
    case Placement::Kind::kPartial:
      break;
  }
  return "P(" + std::string(name_of(placement.op())) + ")";
}

Placement read_placement(TextCursor& in) {
  if (in.eat('R')) return Replicate();
  const bool shard = in.eat('S');
  if (!shard && !in.eat('P')) in.fail("a placement: R, S(dim) or P(sum, min, max or prod)");
  in.expect('(');
  Placement placement;
  if (shard) {
    const int64_t dim = in.number("a tensor dim");
    if (dim < INT32_MIN || dim > INT32_MAX) {
      throw PlacementError("Shard(" + std::to_string(dim) + "): no tensor has so many dims");
    }
    placement = Shard(static_cast<int>(dim));
  } else {
    const std::string name(in.name("sum, min, max or prod"));
    size_t op = 0;
    while (op < kOps.size() && kOps[op] != name) ++op;
    if (op == kOps.size()) {
      throw ArgumentError("placement P(" + name + "): the ops are sum, min, max and prod" +
                          (name == "avg" || name == "mean"
                               ? "; a mean is a sum that is divided by the global count"
                               : ""));
    }
    placement = Partial(static_cast<PartialOp>(op));
  }
  in.expect(')');
  return placement;
}

Placement parse_placement(std::string_view text) {
  TextCursor in(text, "placement");
  const Placement placement = read_placement(in);
  in.expect_end();
  return placement;
}

}  // namespace dtensor
