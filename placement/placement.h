// Placement: what a tensor does on one mesh dim.
//   Replicate  R       every coordinate holds all of it
//   Shard(d)   S(d)    every coordinate holds a part of tensor dim d, by the cut rule
//   Partial(o) P(sum)  the value is the reduction over the coordinates by op o

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/base/error.h"

namespace dtensor {

class TextCursor;

enum class PartialOp : uint8_t { kSum, kMin, kMax, kProd };

std::string_view name_of(PartialOp op);  // "sum"

class Placement {
 public:
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };

  Placement() = default;  // Replicate
  static Placement replicate() { return {}; }
  static Placement shard(int dim) { return Placement(Kind::kShard, dim, PartialOp::kSum); }
  static Placement partial(PartialOp op) { return Placement(Kind::kPartial, 0, op); }

  Kind kind() const { return kind_; }
  bool is_replicate() const { return kind_ == Kind::kReplicate; }
  bool is_shard() const { return kind_ == Kind::kShard; }
  bool is_partial() const { return kind_ == Kind::kPartial; }
  int dim() const { return dim_; }      // of a shard; may be negative until a Spec took it
  PartialOp op() const { return op_; }  // of a partial
  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  Placement(Kind kind, int dim, PartialOp op) : kind_(kind), op_(op), dim_(dim) {}
  Kind kind_ = Kind::kReplicate;
  PartialOp op_ = PartialOp::kSum;
  int dim_ = 0;
};

inline Placement Replicate() { return Placement::replicate(); }    // NOLINT(*-naming)
inline Placement Shard(int dim) { return Placement::shard(dim); }  // NOLINT(*-naming)
inline Placement Partial(PartialOp op = PartialOp::kSum) {         // NOLINT(*-naming)
  return Placement::partial(op);
}

std::string to_string(Placement placement);  // "R", "S(0)", "P(sum)"
// Reads what to_string writes; ArgumentError otherwise.
Placement parse_placement(std::string_view text);
Placement read_placement(TextCursor& in);

}  // namespace dtensor
