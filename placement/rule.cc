#include "dtensor/placement/rule.h"

#include <algorithm>

#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

RuleLetters::Operands split_operands(std::string_view text) {
  RuleLetters::Operands operands;
  for (;;) {
    const size_t comma = text.find(',');
    operands.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return operands;
    text.remove_prefix(comma + 1);
  }
}

bool has(std::string_view letters, char letter) { return letters.find(letter) != letters.npos; }

// Is `to` reached by moves from R alone, R -> P and R -> S, whose levels come last? These need no
// message, whatever the lengths.
bool only_appends(const Spec& from, const Spec& to) {
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m) != to.placement(m) && !from.placement(m).is_replicate()) return false;
  }
  for (int d = 0; d < from.ndim(); ++d) {
    const auto before = from.levels(d);
    const auto after = to.levels(d);
    if (before.size() > after.size() || !std::ranges::equal(before, after.first(before.size()))) {
      return false;
    }
  }
  return true;
}

// Where a letter's cut is taken from.
struct Source {
  int input = -1;
  int dim = 0;
};

// The steps of match_rule; each returns false after saying why in `mismatch`.
class Matcher {
 public:
  Matcher(const Rule& rule, std::span<const Layout> in, bool allow_communicating)
      : rule_(rule),
        in_(in),
        allow_(allow_communicating),
        letters_(parse_letters(rule)),
        mesh_(in.front().mesh()) {
    std::vector<Shape> shapes;
    for (const Layout& x : in) shapes.push_back(x.shape());
    sizes_ = check_sizes(rule, letters_, shapes);
    for (const MadeLetter& made : rule.made) sizes_.set(made.letter, made.size);
  }

  RuleMatch run() {
    if (find_cuts() && find_partials() && place_inputs() && place_outputs()) return {result_, {}};
    return {{}, mismatch_};
  }

 private:
  bool fail(int mesh_dim, std::string why) {
    mismatch_ = RuleMismatch{mesh_dim, std::move(why)};
    return false;
  }

  std::span<const Level> levels(const Source& s) const {
    return in_[static_cast<size_t>(s.input)].spec().levels(s.dim);
  }

  // The cut that all inputs with a letter are to have: the longest list among them, then what the
  // others are cut by beside it. Whether they get there silently is for place_inputs to say: so
  // they do where the mesh dims that they lack have one rank.
  bool find_cuts() {
    cutter_.fill('\0');
    for (size_t i = 0; i < in_.size(); ++i) {
      for (size_t d = 0; d < letters_.in[i].size(); ++d) {
        const Source s{static_cast<int>(i), static_cast<int>(d)};
        Source& best = source_[static_cast<unsigned char>(letters_.in[i][d])];
        if (best.input < 0 || levels(s).size() > levels(best).size()) best = s;
      }
    }
    for (char letter = 'A'; letter <= 'z'; ++letter) {
      const Source& s = source_[static_cast<unsigned char>(letter)];
      if (s.input < 0) continue;
      cut_[static_cast<unsigned char>(letter)] = united(letter, levels(s));
      for (const Level& level : cut_[static_cast<unsigned char>(letter)]) {
        if (!take(letter, level.mesh_dim)) return false;
      }
    }
    return true;
  }

  std::vector<Level> united(char letter, std::span<const Level> longest) const {
    std::vector<Level> all(longest.begin(), longest.end());
    for (size_t i = 0; i < in_.size(); ++i) {
      const size_t d = letters_.in[i].find(letter);
      if (d == std::string_view::npos) continue;
      for (const Level& level : in_[i].spec().levels(static_cast<int>(d))) {
        if (std::ranges::count(all, level.mesh_dim, &Level::mesh_dim) == 0) all.push_back(level);
      }
    }
    return all;
  }

  bool take(char letter, int mesh_dim) {
    if (has(rule_.uncut, letter)) {
      return fail(mesh_dim, std::string("'") + letter + "' may not be cut");
    }
    if (has(rule_.communicating, letter)) {
      if (!allow_) {
        std::string why = std::string("a cut of '") + letter + "' needs messages inside the op";
        if (!rule_.ask.empty()) why += ", asked for by " + std::string(rule_.ask);
        return fail(mesh_dim, why);
      }
      result_.communicates = true;
    }
    char& cutter = cutter_[static_cast<size_t>(mesh_dim)];
    if (cutter != '\0') {
      return fail(mesh_dim, std::string("it would cut both '") + cutter + "' and '" + letter + "'");
    }
    cutter = letter;
    return true;
  }

  bool find_partials() {
    group_.fill(nullptr);
    for (int m = 0; m < mesh_.ndim(); ++m) {
      std::vector<int> partial;
      for (size_t i = 0; i < in_.size(); ++i) {
        const Placement p = in_[i].placement(m);
        if (!p.is_partial()) continue;
        if (p.op() != PartialOp::kSum) return fail(m, to_string(p) + " has to be reduced first");
        partial.push_back(static_cast<int>(i));
      }
      if (partial.empty()) continue;
      if (const char cutter = cutter_[static_cast<size_t>(m)]; cutter != '\0') {
        return fail(m, std::string("Partial meets a cut of '") + cutter + "'");
      }
      const auto group = std::ranges::find_if(rule_.linear, [&](const Rule::InputSet& set) {
        return std::ranges::all_of(partial,
                                   [&](int i) { return std::ranges::find(set, i) != set.end(); });
      });
      if (group == rule_.linear.end()) {
        return fail(m, partial.size() == 1 ? "it is not linear in its Partial input"
                                           : "it is not jointly linear in its Partial inputs");
      }
      group_[static_cast<size_t>(m)] = &*group;
    }
    return true;
  }

  std::vector<Placement> partial_placements(int input) const {
    std::vector<Placement> placements(static_cast<size_t>(mesh_.ndim()));
    for (size_t m = 0; m < placements.size(); ++m) {
      if (group_[m] && std::ranges::find(*group_[m], input) != group_[m]->end()) {
        placements[m] = Partial();
      }
    }
    return placements;
  }

  bool place_inputs() {
    for (size_t i = 0; i < in_.size(); ++i) {
      std::vector<std::vector<Level>> cuts;
      for (const char letter : letters_.in[i]) {
        cuts.push_back(cut_[static_cast<unsigned char>(letter)]);
      }
      const int input = static_cast<int>(i);
      const Layout want(Spec::from_levels(mesh_, cuts, partial_placements(input)), in_[i].shape());
      const bool is_there = in_[i].spec() == want.spec();
      // Which of the cases below holds is then the same for every length.
      if (!is_there && !only_appends(in_[i].spec(), want.spec())) result_.by_lengths = true;
      if (is_there || equal_boundaries(in_[i], want)) {
        result_.in.push_back(in_[i]);
      } else if (is_silent_move(in_[i], want)) {
        result_.in.push_back(want);
      } else {
        return not_alike(input, want);
      }
    }
    return true;
  }

  // Names the letter and shows both cuts.
  bool not_alike(int input, const Layout& want) {
    const Layout& x = in_[static_cast<size_t>(input)];
    for (int d = 0; d < x.ndim(); ++d) {
      if (cut_alike(x, d, want, d)) continue;
      const char letter = letters_.in[static_cast<size_t>(input)][static_cast<size_t>(d)];
      const Source& s = source_[static_cast<unsigned char>(letter)];
      const Layout& other = in_[static_cast<size_t>(s.input)];
      const auto mine = x.spec().levels(d);
      const auto theirs = levels(s);
      int mesh_dim = theirs.empty() ? mine.front().mesh_dim : theirs.front().mesh_dim;
      for (size_t k = 0; k < theirs.size(); ++k) {
        if (k < mine.size() && mine[k] == theirs[k]) continue;
        mesh_dim = theirs[k].mesh_dim;
        break;
      }
      return fail(mesh_dim, std::string("'") + letter + "' is not cut alike: " +
                                cut_text(rule_.name(s.input), other, s.dim) + ", " +
                                cut_text(rule_.name(input), x, d));
    }
    for (int m = 0; m < mesh_.ndim(); ++m) {
      if (x.placement(m) != want.placement(m)) {
        return fail(m, rule_.name(input) + " would have to be " + to_string(want.placement(m)));
      }
    }
    return fail(0, "the placements do not fit");
  }

  // "x by dp, tp (36,24)"
  std::string cut_text(const std::string& name, const Layout& x, int dim) const {
    std::string text = name;
    const auto cut = x.spec().levels(dim);
    for (size_t k = 0; k < cut.size(); ++k) {
      text += (k == 0 ? " by " : ", then ") + mesh_.name(cut[k].mesh_dim);
      if (cut[k].unit != 1) text += " in units of " + std::to_string(cut[k].unit);
    }
    if (cut.empty()) text += " whole";
    const int shown = std::min(mesh_.size(), 8);
    for (int r = 0; r < shown; ++r) {
      text += (r == 0 ? " (" : ",") + std::to_string(x.range(dim, mesh_.coordinate_at(r)).size());
    }
    return text + (shown < mesh_.size() ? ",...)" : ")");
  }

  bool place_outputs() {
    for (const std::string_view out : letters_.out) {
      Shape shape;
      std::vector<std::vector<Level>> cuts;
      for (const char letter : out) {
        shape.push_back(sizes_[letter]);
        cuts.emplace_back(inherited(letter));
      }
      std::vector<Placement> placements(static_cast<size_t>(mesh_.ndim()));
      std::optional<PartialOp> op;
      for (int m = 0; m < mesh_.ndim(); ++m) {
        const char cutter = cutter_[static_cast<size_t>(m)];
        const bool cut_away = cutter != '\0' && !has(out, cutter) && !has(rule_.reduced, cutter);
        if (!cut_away && !group_[static_cast<size_t>(m)]) continue;
        const PartialOp here = cut_away ? rule_.reduce : PartialOp::kSum;
        if (op && *op != here) return fail(m, "the result would be Partial by two operations");
        op = here;
        placements[static_cast<size_t>(m)] = Partial(here);
      }
      result_.out.emplace_back(Spec::from_levels(mesh_, cuts, placements), shape);
    }
    return true;
  }

  std::vector<Level> inherited(char letter) const {
    for (size_t i = 0; i < in_.size(); ++i) {
      const size_t d = letters_.in[i].find(letter);
      if (d == std::string_view::npos) continue;
      const auto cut = result_.in[i].spec().levels(static_cast<int>(d));
      return {cut.begin(), cut.end()};
    }
    return {};
  }

  const Rule& rule_;
  std::span<const Layout> in_;
  bool allow_;
  RuleLetters letters_;
  const MeshLayout& mesh_;
  LetterSizes sizes_;
  std::array<Source, 128> source_{};
  std::array<std::vector<Level>, 128> cut_;  // by letter
  std::array<char, kMaxMeshDims> cutter_{};  // by mesh dim
  std::array<const Rule::InputSet*, kMaxMeshDims> group_{};
  RuleResult result_;
  RuleMismatch mismatch_;
};

}  // namespace

std::string Rule::name(int input) const {
  const auto i = static_cast<size_t>(input);
  if (i < names.size()) return std::string(names[i]);
  return std::string(1, static_cast<char>('a' + input));
}

bool Rule::may_cut(char letter, bool allow_communicating) const {
  return !has(uncut, letter) && (allow_communicating || !has(communicating, letter));
}

RuleLetters parse_letters(const Rule& rule) {
  const std::string_view text = rule.letters;
  const size_t arrow = text.find("->");
  internal_check(arrow != std::string_view::npos, "a rule without ->");
  return {split_operands(text.substr(0, arrow)), split_operands(text.substr(arrow + 2))};
}

PlacementSignature signature_of(const Rule& rule) {
  const RuleLetters letters = parse_letters(rule);
  const size_t n = letters.in.size();
  PlacementSignature signature{rule.op, rule.letters, {}};
  signature.rows.push_back({std::vector<Placement>(n), std::vector<Placement>(letters.out.size())});

  std::string seen;
  for (const std::string_view operand : letters.in) {
    for (const char letter : operand) {
      if (has(seen, letter) || !rule.may_cut(letter, true)) continue;
      seen += letter;
      SignatureRow row{{}, {}, has(rule.communicating, letter)};
      for (const std::string_view in : letters.in) {
        const size_t d = in.find(letter);
        row.in.push_back(d == in.npos ? Replicate() : Shard(static_cast<int>(d)));
      }
      for (const std::string_view out : letters.out) {
        const size_t d = out.find(letter);
        const Placement cut_away = has(rule.reduced, letter) ? Replicate() : Partial(rule.reduce);
        row.out.push_back(d == out.npos ? cut_away : Shard(static_cast<int>(d)));
      }
      signature.rows.push_back(std::move(row));
    }
  }
  for (const Rule::InputSet& set : rule.linear) {
    SignatureRow row{std::vector<Placement>(n), {}};
    for (const int i : set) row.in[static_cast<size_t>(i)] = Partial();
    row.out.assign(letters.out.size(), Partial());
    signature.rows.push_back(std::move(row));
  }
  return signature;
}

LetterSizes check_sizes(const Rule& rule, const RuleLetters& letters, std::span<const Shape> in) {
  internal_check(in.size() == letters.in.size(), "a rule with another number of inputs");
  LetterSizes sizes;
  std::array<size_t, 128> first{};
  for (size_t i = 0; i < in.size(); ++i) {
    const std::string_view mine = letters.in[i];
    if (static_cast<size_t>(in[i].ndim()) != mine.size()) {
      throw ArgumentError(rule.op + ": " + rule.name(static_cast<int>(i)) + " has shape " +
                          to_string(in[i]) + "; " + rule.letters + " wants " +
                          std::to_string(mine.size()) + " dims");
    }
    for (size_t d = 0; d < mine.size(); ++d) {
      const char letter = mine[d];
      const int64_t size = in[i][static_cast<int>(d)];
      const auto index = static_cast<unsigned char>(letter);
      if (sizes[letter] < 0) {
        sizes.set(letter, size);
        first[index] = i;
      } else if (sizes[letter] != size) {
        throw ArgumentError(rule.op + ": " + rule.name(static_cast<int>(first[index])) + " " +
                            to_string(in[first[index]]) + " and " + rule.name(static_cast<int>(i)) +
                            " " + to_string(in[i]) + " do not fit: '" + letter + "' of " +
                            rule.letters + " is " + std::to_string(sizes[letter]) + " and " +
                            std::to_string(size));
      }
    }
  }
  return sizes;
}

RuleMatch match_rule(const Rule& rule, std::span<const Layout> in, bool allow_communicating) {
  return Matcher(rule, in, allow_communicating).run();
}

bool is_silent_move(const Layout& from, const Layout& to) {
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m) != to.placement(m) && !from.placement(m).is_replicate()) return false;
  }
  return plan(from, to).is_free();
}

}  // namespace dtensor
