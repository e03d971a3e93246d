#include "dtensor/placement/rule_fix.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

// More candidates than this are not looked at: a call on six mesh dims that fits on none of them.
constexpr size_t kMaxCandidates = 3000;

// What a mesh dim does in a candidate: cuts a letter, makes a linear set Partial, or nothing.
struct Choice {
  char letter = '\0';
  int group = -1;
  friend bool operator==(const Choice&, const Choice&) = default;
};

using LevelLists = std::vector<std::vector<Level>>;

class FixFinder {
 public:
  FixFinder(const Rule& rule, std::span<const Layout> in, const RuleOptions& options)
      : rule_(rule),
        in_(in),
        options_(options),
        letters_(parse_letters(rule)),
        mesh_(in.front().mesh()) {
    for (const std::string_view operand : letters_.in) {
      for (const char letter : operand) {
        if (all_letters_.find(letter) == std::string::npos) all_letters_ += letter;
      }
    }
  }

  std::vector<Fix> run() {
    std::vector<std::vector<Choice>> some;
    for (int m = 0; m < mesh_.ndim(); ++m) {
      const std::vector<Choice> now = current(m);
      some.push_back(now.size() == 1 && !troubled(m) ? now : every_choice());
    }
    std::vector<Choice> chosen;
    over_choices(some, chosen);
    if (fixes_.empty()) {  // what fits on each mesh dim alone does not fit together
      const std::vector<std::vector<Choice>> all(some.size(), every_choice());
      over_choices(all, chosen);
    }
    std::ranges::stable_sort(fixes_, [](const Fix& a, const Fix& b) {
      return std::pair(a.received_bytes, a.moved) < std::pair(b.received_bytes, b.moved);
    });
    return std::move(fixes_);
  }

 private:
  std::span<const Level> levels(size_t input, size_t dim) const {
    return in_[input].spec().levels(static_cast<int>(dim));
  }

  // The choices that the placements given on one mesh dim amount to; one where they fit a row.
  std::vector<Choice> current(int m) const {
    std::vector<Choice> found;
    std::vector<int> partial;
    for (size_t i = 0; i < in_.size(); ++i) {
      const Placement p = in_[i].placement(m);
      if (p.is_partial()) partial.push_back(static_cast<int>(i));
      if (p.is_partial() && p.op() != PartialOp::kSum) return {};
      if (!p.is_shard()) continue;
      const char letter = letters_.in[i][static_cast<size_t>(p.dim())];
      if (!rule_.may_cut(letter, options_.allow_communicating)) return {};
      if (std::ranges::find(found, Choice{letter, -1}) == found.end())
        found.push_back({letter, -1});
    }
    if (partial.empty()) return found.empty() ? std::vector<Choice>{{}} : found;
    for (size_t g = 0; g < rule_.linear.size() && found.empty(); ++g) {
      const Rule::InputSet& set = rule_.linear[g];
      if (std::ranges::all_of(partial, [&](int i) { return std::ranges::count(set, i) > 0; })) {
        return {Choice{'\0', static_cast<int>(g)}};
      }
    }
    return {};
  }

  // Does the mesh dim cut a letter that two inputs do not cut alike?
  bool troubled(int m) const {
    for (const char letter : all_letters_) {
      bool touches = false;
      bool alike = true;
      std::vector<std::pair<size_t, size_t>> where;
      for (size_t i = 0; i < in_.size(); ++i) {
        const size_t d = letters_.in[i].find(letter);
        if (d != std::string_view::npos) where.emplace_back(i, d);
      }
      for (const auto& [i, d] : where) {
        for (const Level& level : levels(i, d)) touches = touches || level.mesh_dim == m;
        for (const auto& [j, e] : where) {
          // One that lacks the last levels of another joins it by a silent move, or so it seems:
          // match_rule has the last word.
          const auto a = levels(i, d);
          const auto b = levels(j, e);
          const bool prefix =
              a.size() != b.size() && std::ranges::equal(a.first(std::min(a.size(), b.size())),
                                                         b.first(std::min(a.size(), b.size())));
          alike = alike &&
                  (prefix || cut_alike(in_[i], static_cast<int>(d), in_[j], static_cast<int>(e)));
        }
      }
      if (touches && !alike) return true;
    }
    return false;
  }

  std::vector<Choice> every_choice() const {
    std::vector<Choice> choices;
    for (const char letter : all_letters_) {
      if (rule_.may_cut(letter, options_.allow_communicating)) choices.push_back({letter, -1});
    }
    choices.push_back({});
    for (size_t g = 0; g < rule_.linear.size(); ++g) {
      choices.push_back({'\0', static_cast<int>(g)});
    }
    return choices;
  }

  void over_choices(const std::vector<std::vector<Choice>>& options, std::vector<Choice>& chosen) {
    if (chosen.size() == options.size()) {
      std::vector<LevelLists> lists;
      for (const char letter : all_letters_) lists.push_back(level_lists(letter, chosen));
      std::vector<std::vector<Level>> picked;
      return over_lists(lists, picked, chosen);
    }
    for (const Choice& choice : options[chosen.size()]) {
      chosen.push_back(choice);
      over_choices(options, chosen);
      chosen.pop_back();
    }
  }

  // The level lists that a letter may get under the choices: those of each input that has it, less
  // what other letters took, and new levels appended last.
  LevelLists level_lists(char letter, const std::vector<Choice>& chosen) const {
    LevelLists lists;
    for (size_t i = 0; i < in_.size(); ++i) {
      const size_t d = letters_.in[i].find(letter);
      if (d == std::string_view::npos) continue;
      std::vector<Level> list;
      for (const Level& level : levels(i, d)) {
        if (chosen[static_cast<size_t>(level.mesh_dim)].letter == letter) list.push_back(level);
      }
      for (size_t m = 0; m < chosen.size(); ++m) {
        const int mesh_dim = static_cast<int>(m);
        const bool there = std::ranges::count(list, mesh_dim, &Level::mesh_dim) > 0;
        if (chosen[m].letter == letter && !there) list.push_back(Level{mesh_dim, 1});
      }
      if (std::ranges::find(lists, list) == lists.end()) lists.push_back(list);
    }
    return lists;
  }

  void over_lists(const std::vector<LevelLists>& lists, std::vector<std::vector<Level>>& picked,
                  const std::vector<Choice>& chosen) {
    if (looked_at_ >= kMaxCandidates) return;
    if (picked.size() == lists.size()) {
      ++looked_at_;
      return consider(picked, chosen);
    }
    for (const std::vector<Level>& list : lists[picked.size()]) {
      picked.push_back(list);
      over_lists(lists, picked, chosen);
      picked.pop_back();
    }
  }

  void consider(const std::vector<std::vector<Level>>& picked, const std::vector<Choice>& chosen) {
    Fix fix;
    for (size_t i = 0; i < in_.size(); ++i) {
      const Layout& x = in_[i];
      std::vector<std::vector<Level>> cuts;
      for (const char letter : letters_.in[i]) cuts.push_back(picked[all_letters_.find(letter)]);
      std::vector<Placement> placements(chosen.size());
      for (size_t m = 0; m < chosen.size(); ++m) {
        const int g = chosen[m].group;
        if (g < 0) continue;
        const Rule::InputSet& set = rule_.linear[static_cast<size_t>(g)];
        if (std::ranges::count(set, static_cast<int>(i)) > 0) placements[m] = Partial();
      }
      const Layout want(Spec::from_levels(mesh_, cuts, placements), x.shape());
      if (x.spec().has_partial() && x.spec().partial_op() != PartialOp::kSum &&
          want.spec().has_partial()) {
        return;  // there is no way from P(max) to P(sum)
      }
      if (equal_boundaries(x, want) || is_silent_move(x, want)) {
        fix.in.push_back(x);
        fix.each.push_back(0);
        continue;
      }
      const ReshardPlan moves = plan(x, want);
      const DType dtype = i < options_.dtypes.size() ? options_.dtypes[i] : DType::kFloat32;
      fix.each.push_back(moves.most_received() * size_of(dtype));
      fix.received_bytes += fix.each.back();
      fix.payload_elements += moves.payload();
      fix.moved += 1;
      fix.in.push_back(want);
    }
    if (std::ranges::any_of(fixes_, [&](const Fix& f) { return f.in == fix.in; })) return;
    const RuleMatch match = match_rule(rule_, fix.in, options_.allow_communicating);
    if (match.mismatch) return;
    fix.out = match.result.out;
    fix.new_cuts = new_cuts(chosen);
    fixes_.push_back(std::move(fix));
  }

  int new_cuts(const std::vector<Choice>& chosen) const {
    int count = 0;
    for (size_t m = 0; m < chosen.size(); ++m) {
      if (chosen[m].letter == '\0') continue;
      bool was_cut = false;
      for (size_t i = 0; i < in_.size(); ++i) {
        const Placement p = in_[i].placement(static_cast<int>(m));
        was_cut = was_cut || (p.is_shard() &&
                              letters_.in[i][static_cast<size_t>(p.dim())] == chosen[m].letter);
      }
      count += was_cut ? 0 : 1;
    }
    return count;
  }

  const Rule& rule_;
  std::span<const Layout> in_;
  const RuleOptions& options_;
  RuleLetters letters_;
  const MeshLayout& mesh_;
  std::string all_letters_;
  size_t looked_at_ = 0;
  std::vector<Fix> fixes_;
};

std::string placement_code(Placement p) {
  if (p.is_shard()) return "Shard(" + std::to_string(p.dim()) + ")";
  if (p.is_replicate()) return "Replicate()";
  switch (p.op()) {
    case PartialOp::kSum:
      return "Partial()";
    case PartialOp::kMin:
      return "Partial(PartialOp::kMin)";
    case PartialOp::kMax:
      return "Partial(PartialOp::kMax)";
    case PartialOp::kProd:
      break;
  }
  return "Partial(PartialOp::kProd)";
}

}  // namespace

std::vector<Fix> fixes(const Rule& rule, std::span<const Layout> in, const RuleOptions& options) {
  return FixFinder(rule, in, options).run();
}

std::string redistribute_code(const NamedLayout& from, const Layout& to,
                              std::span<const NamedLayout> others) {
  std::vector<int> dims;
  std::string list;
  int changed = -1;
  int changes = 0;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    dims.push_back(m);
    const Placement p = to.placement(m);
    list += (m == 0 ? "" : ", ") + placement_code(p);
    const Level* before = from.layout.spec().level(m);
    const Level* after = to.spec().level(m);
    const bool level_moves = before && after && before->unit != after->unit;
    if (from.layout.placement(m) == p && !level_moves) continue;
    changed = m;
    ++changes;
  }
  // What redistribute makes of a list of placements.
  const Layout plain = from.layout.with(dims, to.spec().placements());
  if (plain == to) return fmt::format("redistribute({}, {{{}}})", from.name, list);
  if (changes == 1 && to.spec().level(changed)) {
    const Placement p = to.placement(changed);
    const int64_t unit = to.spec().level(changed)->unit;
    if (from.layout.with(changed, p, unit) == to) {
      return fmt::format("redistribute({0}, {0}.layout().with({1}, {2}, {3}))", from.name, changed,
                         placement_code(p), unit);
    }
  }
  for (const NamedLayout& other : others) {
    if (other.layout == to) {
      return fmt::format("redistribute({}, {}.layout())", from.name, other.name);
    }
  }
  return fmt::format("redistribute({0}, parse_layout(\"{1}\", {0}.shape()))", from.name,
                     to_string(to));
}

std::string bytes_text(int64_t bytes) {
  constexpr double kKiB = 1024.0;
  const auto b = static_cast<double>(bytes);
  if (b >= kKiB * kKiB * kKiB) return fmt::format("{:.1f} GiB", b / (kKiB * kKiB * kKiB));
  if (b >= kKiB * kKiB) return fmt::format("{:.1f} MiB", b / (kKiB * kKiB));
  if (bytes >= 10 * 1024) return fmt::format("{:.1f} KiB", b / kKiB);
  return fmt::format("{} bytes", bytes);
}

}  // namespace dtensor
