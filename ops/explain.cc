#include "dtensor/ops/explain.h"

#include <algorithm>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/registry.h"

namespace dtensor::ops {
namespace {

std::string head_of(const OpRun& run) {
  std::string text(run.op);
  if (run.rule != nullptr) text += " " + run.rule->letters;
  for (size_t i = 0; i < run.given.size(); ++i) {
    const DTensor& x = run.given[i];
    text += i == 0 ? ": " : ", ";
    if (run.rule != nullptr) text += run.rule->name(static_cast<int>(i)) + " ";
    text += std::string(name_of(x.dtype())) + to_string(x.shape());
  }
  return text + "\n";
}

// "R", or "R => S(0)" where the op's input was moved.
std::string placement_text(const DTensor& given, const DTensor& taken, int mesh_dim) {
  const Placement after = taken.layout().placement(mesh_dim);
  if (!given.mesh().defined()) return "on no mesh => " + to_string(after);
  const Placement before = given.layout().placement(mesh_dim);
  return before == after ? to_string(after) : to_string(before) + " => " + to_string(after);
}

std::string text_of(const OpRun& run) {
  std::string text = head_of(run);
  const MeshLayout& mesh = run.outputs.front().mesh().layout();
  for (int m = 0; m < mesh.ndim(); ++m) {
    text += "  " + mesh.name(m) + ": ";
    for (size_t i = 0; i < run.inputs.size(); ++i) {
      text += (i == 0 ? "" : ", ") + placement_text(run.given[i], run.inputs[i], m);
    }
    for (size_t o = 0; o < run.outputs.size(); ++o) {
      text += (o == 0 ? " -> " : ", ") + to_string(run.outputs[o].layout().placement(m));
    }
    text += "\n";
  }
  if (mesh.ndim() == 0) text += "  on no mesh\n";
  return text;
}

}  // namespace

std::string explain(const std::function<void()>& f) {
  std::string text;
  RuleTap tap = Context::current().slot<RuleTap>();
  tap.ran = [&text, before = tap.ran](const OpRun& run) {
    if (before) before(run);
    text += text_of(run);
  };
  const ScopedSlot<RuleTap> scope(std::move(tap));
  try {
    f();
  } catch (const PlacementError& e) {
    text += std::string(e.what()) + "\n";
  }
  return text;
}

std::string explain(std::string_view op, std::span<const DTensor> inputs) {
  std::string known;
  for (const OpEntry& entry : all_ops()) {
    if (entry.name == op && entry.operands.size() == inputs.size()) {
      return explain([&] { static_cast<void>(entry.call(inputs)); });
    }
    const std::string listed = entry.name + " of " + std::to_string(entry.operands.size());
    if (known.find(listed) == std::string::npos) known += (known.empty() ? "" : ", ") + listed;
  }
  throw ArgumentError("explain: no op \"" + std::string(op) + "\" of " +
                      std::to_string(inputs.size()) + " operands; there are " + known);
}

std::string explain(std::string_view op, std::initializer_list<DTensor> inputs) {
  return explain(op, std::span<const DTensor>(inputs.begin(), inputs.size()));
}

}  // namespace dtensor::ops
