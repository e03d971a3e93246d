#include "dtensor/tools/plan_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/tools/mesh_drawing.h"

namespace dtensor::tools {
namespace {

constexpr size_t kMaxMessages = 24;  // lines of one step
constexpr size_t kMaxGroups = 8;
constexpr size_t kMaxRanksCounted = 256;  // on more ranks, messages that are not shown are not made

std::string list(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

std::string names_of(const MeshLayout& mesh, const std::vector<int>& dims) {
  std::vector<std::string> names;
  names.reserve(dims.size());
  for (const int m : dims) names.push_back(mesh.name(m));
  return list(names);
}

// "{0,2}", or the first few of many.
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  const std::vector<int> shown(
      ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(std::min(ranks.size(), kShown)));
  return fmt::format("{{{}{}}}", fmt::join(shown, ","),
                     ranks.size() > kShown ? fmt::format(",... {} in all", ranks.size()) : "");
}

// What the value is where ranks hold terms: "; each is a term of the sum over dp".
std::string terms_text(const Layout& layout) {
  std::vector<int> dims;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_partial()) dims.push_back(m);
  }
  if (dims.empty()) return "";
  return fmt::format("; each holds a term of the {} over {}", name_of(layout.spec().partial_op()),
                     names_of(layout.mesh(), dims));
}

std::string box_text(const std::optional<Box>& box) {
  if (!box) return "-";
  return box->empty() ? "empty" : to_string(*box);
}

class Explanation {
 public:
  Explanation(const ReshardPlan& plan, DType dtype, const CostModel& model)
      : plan_(plan), dtype_(dtype), element_bytes_(size_of(dtype)), model_(model) {}

  std::string run() {
    const Layout& from = plan_.from();
    const Layout& to = plan_.to();
    std::string text = fmt::format("{}{}\n  from {}\n  to   {}\n\n", name_of(dtype_),
                                   to_string(from.shape()), to_string(from), to_string(to));
    text += fmt::format("before: rank and what it holds{}\n", terms_text(from));
    text += draw_mesh(from.mesh(), [&](int rank) { return box_text(from.box_of(rank)); });
    const size_t steps = plan_.steps().size();
    for (size_t i = 0; i < steps; ++i) text += step_text(i);
    text += steps == 0 ? "\nno steps: every rank holds what it will hold\n" : "";
    if (steps == 0 && !(from == to)) {
      text += fmt::format("\nafter{}\n", terms_text(to));
      text += draw_mesh(to.mesh(), [&](int rank) { return box_text(to.box_of(rank)); });
    }
    return text + fmt::format("\n{} B sent in all, {}, {:.3g} us by the links\n",
                              bytes(plan_.payload()), least_text(plan_, element_bytes_),
                              seconds_of(plan_, model_) * 1e6);
  }

 private:
  int64_t bytes(int64_t elements) const { return checked_mul(elements, element_bytes_); }
  std::string bytes(const Box& box) const { return fmt::format("{} B", bytes(box.numel())); }

  std::string step_text(size_t index) {
    const ReshardStep& step = plan_.steps()[index];
    std::string text =
        fmt::format("\nstep {} of {}: {}", index + 1, plan_.steps().size(), name_of(step.kind));
    if (reduces(step)) text += fmt::format(" by {}", name_of(*step.op));
    if (!step.mesh_dims.empty()) {
      text += fmt::format(" over {}", names_of(step.from.mesh(), step.mesh_dims));
    }
    text += step.kind == StepKind::kLocal ? ", no message\n"
                                          : fmt::format(", {} B, {:.3g} us\n", bytes(step.payload),
                                                        seconds_of(step, model_) * 1e6);
    if (step.is_between_meshes()) {
      text += fmt::format("  {} -> {}\n", to_string(step.from), to_string(step.to));
    } else {
      text += fmt::format("  {} -> {}\n", to_string(step.from.spec()), to_string(step.to.spec()));
    }
    if (step.within) {
      text += fmt::format("  ranks hold {} what lies within {} alone\n",
                          reduces(step) ? "after it" : "before it, of the former,",
                          to_string(step.within->spec()));
    }
    text += fmt::format("  why: {}\n", why(index));
    if (!step.from_only.empty() && step.kind != StepKind::kLocal) text += only_text(step);
    if (step.kind != StepKind::kLocal) text += messages_text(step);
    text += fmt::format("  then{}\n", terms_text(step.to));
    text += draw_mesh(step.to.mesh(), [&](int rank) { return box_text(box_after(step, rank)); });
    return text;
  }

  std::string only_text(const ReshardStep& step) const {
    std::vector<std::string> places;
    for (const PinnedDim& p : step.from_only) {
      places.push_back(fmt::format("{} {}", step.from.mesh().name(p.mesh_dim), p.coordinate));
    }
    return fmt::format("  only ranks at {} take part: the others' copies are not needed\n",
                       list(places));
  }

  static bool reduces(const ReshardStep& step) {
    return step.kind == StepKind::kAllReduce || step.kind == StepKind::kReduceScatter;
  }

  std::string why(size_t index) const {
    const std::vector<ReshardStep>& steps = plan_.steps();
    const ReshardStep& step = steps[index];
    const bool more = index + 1 < steps.size();
    const bool moves_after = more && steps.back().kind != StepKind::kLocal;
    const std::string op(step.op ? name_of(*step.op) : "");
    switch (step.kind) {
      case StepKind::kLocal:
        return local_reasons(step) + (moves_after ? "; first, so that less is sent after" : "");
      case StepKind::kAllGather:
        return "each rank of a group has a part of what all of them will hold";
      case StepKind::kBroadcast:
        return "one rank of a group has all that the others lack";
      case StepKind::kReduceScatter:
        return fmt::format("each rank takes a part of the {} and the terms of that part alone",
                           op) +
               (moves_after ? "; before other moves, so that these send the value once and not "
                              "each term"
                            : "");
      case StepKind::kAllReduce:
        return fmt::format("each rank of a group will hold the whole {} of their terms", op) +
               (moves_after ? "; before other moves, so that these send the value once and not "
                              "each term"
                            : "");
      case StepKind::kAllToAll:
        return cut_changes(step) + "each rank has a piece for each other one";
      case StepKind::kExchange:
        break;
    }
    if (step.op) {
      return cut_changes(step) +
             "a rank gets what its group holds of the new box, and the identity "
             "for the rest";
    }
    if (step.is_between_meshes()) {
      return "the meshes differ: what a rank of the new one lacks comes from one that holds it";
    }
    return cut_changes(step) + "only what a rank lacks is sent";
  }

  // "dim 0 is cut by a, then b before and not cut after: "
  static std::string cut_changes(const ReshardStep& step) {
    std::vector<std::string> changes;
    for (int d = 0; d < step.from.ndim(); ++d) {
      if (cut_alike(step.from, d, step.to, d)) continue;
      changes.push_back(fmt::format("dim {} is {} before and {} after", d, cut_text(step.from, d),
                                    cut_text(step.to, d)));
    }
    return changes.empty() ? "" : list(changes) + ": ";
  }

  static std::string cut_text(const Layout& layout, int d) {
    std::string text;
    for (const Level& level : layout.spec().levels(d)) {
      text += fmt::format("{} {}", text.empty() ? "cut by" : ", then",
                          layout.mesh().name(level.mesh_dim));
      if (level.unit != 1) text += fmt::format(" in units of {}", level.unit);
    }
    return text.empty() ? "not cut" : text;
  }

  // By mesh dim.
  static std::string local_reasons(const ReshardStep& step) {
    const MeshLayout& mesh = step.to.mesh();
    std::vector<std::string> reasons;
    for (int m = 0; m < mesh.ndim() && step.from.mesh() == mesh; ++m) {
      const Placement p = step.from.placement(m);
      const Placement q = step.to.placement(m);
      if (p == q) continue;
      const std::string_view op = q.is_partial() ? name_of(q.op()) : "";
      if (q.is_shard() && p.is_replicate()) {
        reasons.push_back(fmt::format("on {} every rank has all and keeps its part", mesh.name(m)));
      } else if (q.is_partial() && p.is_replicate()) {
        const bool fills = q.op() == PartialOp::kSum || q.op() == PartialOp::kProd;
        reasons.push_back(fills ? fmt::format("on {0} the value stays at coordinate 0, the others "
                                              "take the identity of {1}",
                                              mesh.name(m), op)
                                : fmt::format("on {} every rank keeps the value, as the {} of "
                                              "equal values is the value",
                                              mesh.name(m), op));
      } else if (q.is_partial() && p.is_shard()) {
        reasons.push_back(
            fmt::format("on {} a rank's part stays, the rest is filled with the identity of {}",
                        mesh.name(m), op));
      }
    }
    if (reasons.empty()) return "every rank has already what it will hold";
    return list(reasons);
  }

  // The groups, and what moves in them.
  std::string messages_text(const ReshardStep& step) const {
    const std::vector<int> ranks = plan_.ranks();
    Lines lines{.count_all = ranks.size() <= kMaxRanksCounted};
    std::vector<int> seen;
    std::string groups;
    size_t count = 0;
    for (const int rank : ranks) {
      if (lines.full() && count > kMaxGroups) break;
      if (std::ranges::binary_search(seen, rank)) continue;
      const std::vector<int> group = group_of(step, rank);
      if (group.empty()) continue;
      for (const int member : group) {
        seen.insert(std::ranges::lower_bound(seen, member), member);
      }
      if (++count <= kMaxGroups) groups += " " + ranks_text(group);
      add_group(step, group, lines);
    }
    return fmt::format("  groups{}{}\n{}", groups, count > kMaxGroups ? " ..." : "", lines.text());
  }

  // The first lines, and how many there are where that is counted.
  struct Lines {
    bool count_all = true;
    size_t count = 0;
    std::string shown = {};

    void add(const std::string& line) {
      if (++count <= kMaxMessages) shown += "    " + line + "\n";
    }
    bool full() const { return !count_all && count > kMaxMessages; }
    std::string text() const {
      if (count <= kMaxMessages) return shown;
      return shown + (count_all ? fmt::format("    and {} more\n", count - kMaxMessages)
                                : std::string("    and more\n"));
    }
  };

  void add_group(const ReshardStep& step, const std::vector<int>& group, Lines& lines) const {
    if (step.kind == StepKind::kAllReduce) {
      const Box box = *box_after(step, group.front());
      if (box.empty()) return;
      return lines.add(fmt::format("{} all: {} of {} terms of {}, {} each", ranks_text(group),
                                   name_of(*step.op), group.size(), to_string(box), bytes(box)));
    }
    for (const int rank : group) {
      if (lines.full()) return;
      if (step.kind == StepKind::kReduceScatter) {
        const Box part = *box_after(step, rank);
        if (part.empty()) continue;
        lines.add(fmt::format("{} -> {}  {} of {}, {} a term", ranks_text(group), rank,
                              name_of(*step.op), to_string(part), bytes(part)));
        continue;
      }
      for (const RankPiece& piece : rank_step(step, rank).receive) {
        lines.add(fmt::format("{} -> {}  {}, {}", piece.rank, rank, to_string(piece.box),
                              bytes(piece.box)));
      }
    }
  }

  const ReshardPlan& plan_;
  DType dtype_;
  int64_t element_bytes_;
  const CostModel& model_;
};

}  // namespace

std::string least_text(const ReshardPlan& plan, int64_t element_bytes) {
  const auto least = plan.countable_minimum();
  if (!least) return "the least possible not counted on so many ranks";
  return fmt::format("least possible {} B", checked_mul(*least, element_bytes));
}

std::string explain(const ReshardPlan& plan, DType dtype, const CostModel& model) {
  return Explanation(plan, dtype, model).run();
}

}  // namespace dtensor::tools
