// Rule: an op's placements in index letters, and the two things derived from it: its signature,
// and the layouts of a call. Pure: no tensor data.
//
// "mk,kn->mn" names the dims of every input and output. On one mesh dim one letter may be cut. A
// cut letter that is missing from an output makes that output Partial (of `reduce`). Letters in
// `uncut` may not be cut. A P(sum) input meets no cut letter; within one of the `linear` sets all
// inputs are P (an R joins by the silent move R -> P), the inputs outside it are R.
// A letter may be cut only where it is cut alike (dtensor/placement/layout.h) in every input that
// has it; an input that is R there is sliced silently where that needs no message.
// An output that lacks a communicating letter of `reduced` is R where that is cut.
// Outputs inherit the levels of the first input that has the letter. A letter of outputs only is
// `made` by the op, with its global length, and not cut: "ab->aB".

#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/inline_text.h"
#include "dtensor/base/inline_vector.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/signature.h"

namespace dtensor {

// A letter that the inputs do not have.
struct MadeLetter {
  char letter = 0;
  int64_t size = 0;
  friend bool operator==(const MadeLetter&, const MadeLetter&) = default;
};

// Made anew for every call of an op: it takes no memory from the heap.
struct Rule {
  using InputSet = InlineVector<int, 4>;

  InlineText<119> op;                     // "matmul"
  InlineText<119> letters;                // "mk,kn->mn": a-z and A-Z, each once in an operand
  InlineText<39> uncut = {};              // letters that may not be cut
  InlineVector<MadeLetter, 2> made = {};  // lengths of the letters of outputs only
  InlineVector<InputSet, 3> linear = {};  // sets of inputs that the op is jointly linear in
  PartialOp reduce = PartialOp::kSum;     // of a letter cut away
  InlineText<39> communicating = {};      // letters whose cut needs messages inside the op
  InlineText<39> reduced = {};            // of them, those that the op itself reduces
  std::string_view ask = {};              // what a call writes to ask for them
  InlineVector<std::string_view, 6> names =
      {};  // of the inputs, for messages; a, b, c where missing

  std::string name(int input) const;
  bool may_cut(char letter, bool allow_communicating) const;
};

// The letters of one operand each.
struct RuleLetters {
  using Operands = InlineVector<std::string_view, 8>;
  Operands in;
  Operands out;
};
// Views into rule.letters. InternalError where it is not of that form.
RuleLetters parse_letters(const Rule& rule);

// The rows of one mesh dim that a rule allows, over R, S(d) and P(sum).
PlacementSignature signature_of(const Rule& rule);

// Global lengths by letter, -1 for letters that are not there. ArgumentError naming the letter and
// both shapes where two inputs disagree, or an input has another number of dims.
class LetterSizes {
 public:
  LetterSizes() { sizes_.fill(-1); }
  int64_t operator[](char letter) const { return sizes_[static_cast<unsigned char>(letter)]; }
  void set(char letter, int64_t size) { sizes_[static_cast<unsigned char>(letter)] = size; }

 private:
  std::array<int64_t, 128> sizes_;
};
LetterSizes check_sizes(const Rule& rule, const RuleLetters& letters, std::span<const Shape> in);

// What a call of the op needs and gives.
struct RuleResult {
  std::vector<Layout> in;  // the layouts that the inputs must have: reached by silent moves
  std::vector<Layout> out;
  bool communicates = false;  // a communicating letter is cut
  // Would other lengths of the same Specs have other answers? Else only shapes have to fit.
  bool by_lengths = false;
};
// Why no row takes a call.
struct RuleMismatch {
  int mesh_dim = 0;
  std::string why;
};
struct RuleMatch {
  RuleResult result;
  std::optional<RuleMismatch> mismatch;  // then `result` says nothing
};
// Inputs lie on one mesh. `allow_communicating`: does the call ask for communicating letters to be
// cut? ArgumentError as check_sizes.
RuleMatch match_rule(const Rule& rule, std::span<const Layout> in, bool allow_communicating);

// May `from` become `to` without being asked? Only by moves from R that need no message.
bool is_silent_move(const Layout& from, const Layout& to);

}  // namespace dtensor
