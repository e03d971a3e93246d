// RuleCache: what rules gave for the Specs of a call, a slot of the Context. Lengths are part of a
// key only where other lengths would have another answer (RuleResult::by_lengths), so that a
// changing sequence length is found. An entry keeps the Specs that it was made for: their identity
// cannot pass to others.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/base/inline_vector.h"
#include "dtensor/placement/rule.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// The row that takes a call, for whatever lengths.
class CachedRow {
 public:
  // `in` are the layouts that `result` is for.
  CachedRow(const Rule& rule, std::span<const Layout> in, const RuleResult& result);

  bool moves() const { return moves_; }  // does an input lie otherwise than the row has it?
  const Spec& in(size_t input) const { return in_[input]; }
  size_t outputs() const { return out_.size(); }
  // `inputs` are those of the call, `rule` brings the lengths of made letters.
  Layout out(size_t output, const Rule& rule, std::span<const DTensor> inputs) const;
  // Have dims of one letter one length?
  bool fits(std::span<const DTensor> inputs) const;
  // The shape of an output on this rank: the lengths that its letters have in `inputs` there, which
  // lie as the row has them.
  Shape local_shape(size_t output, const Rule& rule, std::span<const DTensor> inputs) const;

 private:
  // Where a length stands: dim `dim` of an input, or, for input < 0, the made letter `dim`.
  struct Source {
    int32_t input = 0;
    char dim = 0;
  };
  struct Output {
    Spec spec;
    InlineVector<Source, kMaxDims> lengths;
  };
  struct Equal {
    Source a;
    Source b;
  };
  static Source source_of(const RuleLetters& letters, char letter);
  template <class ShapeOf>
  Shape shape(size_t output, const Rule& rule, const ShapeOf& shape_of) const;

  InlineVector<Spec, 4> in_;
  bool moves_ = false;
  InlineVector<Output, 2> out_;
  InlineVector<Equal, 8> equal_;
};

// What is asked of a rule.
struct RuleUse {
  const Rule& rule;
  bool allow_communicating = false;
  bool lasting = false;  // as OpCall's

  const Rule* lasting_rule() const { return lasting ? &rule : nullptr; }
};

class RuleCache {
 public:
  // nullptr where it is not there, or lengths do not fit.
  const CachedRow* find(const RuleUse& use, std::span<const DTensor> inputs) const;
  void keep(const RuleUse& use, std::span<const Layout> in, const RuleResult& result);
  int64_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t hash = 0;
    const Rule* lasting = nullptr;  // the rule itself
    Rule rule;                      // where it does not last
    bool allow = false;

    bool is_of(const RuleUse& use) const;
    InlineVector<Spec, 4> specs;
    bool by_lengths = false;         // and then
    InlineVector<Shape, 4> lengths;  // empty: lengths are part of the keys of these Specs
    std::unique_ptr<CachedRow> row;  // with lengths, or where they do not matter
  };
  // The entry of a hash that `same` agrees with, or the free place for it.
  template <class Same>
  const std::unique_ptr<Entry>& at(uint64_t hash, const Same& same) const;
  void put(std::unique_ptr<Entry> entry);

  std::vector<std::unique_ptr<Entry>> table_ = std::vector<std::unique_ptr<Entry>>(kPlaces);
  int64_t size_ = 0;
  static constexpr size_t kPlaces = 8192;  // a power of two; at most half is in use
};

}  // namespace dtensor::ops
