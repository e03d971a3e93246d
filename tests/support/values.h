// Whole values of DTensors for tests, and comparing them.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"

namespace dtensor::testing {

// The whole value as float32: a collective where `t` is cut or Partial.
inline std::vector<float> values(const DTensor& t) {
  return full(t).to(DType::kFloat32).to_vector<float>();
}
// This rank's piece.
inline std::vector<float> piece(const DTensor& t) {
  return t.local_tensor().to(DType::kFloat32).to_vector<float>();
}

using Values = std::map<std::string, std::vector<float>>;

// Of every parameter, by name; and of the gradients, of those that have one.
inline Values parameter_values(nn::Module& module) {
  Values out;
  for (const auto& [name, p] : module.named_parameters()) out[name] = values(p.value());
  return out;
}
inline Values gradient_values(nn::Module& module) {
  Values out;
  for (const auto& [name, p] : module.named_parameters()) {
    if (p.value().grad().defined()) out[name] = values(p.value().grad());
  }
  return out;
}

// The largest difference; infinity where names or sizes differ.
inline double worst(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= most)) most = difference;
  }
  return most;
}
inline double worst(const Values& a, const Values& b) {
  double most = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, value] : a) {
    const auto it = b.find(name);
    if (it == b.end()) return std::numeric_limits<double>::infinity();
    most = std::max(most, worst(value, it->second));
  }
  return most;
}

inline Ledger& ledger() { return Context::current().slot<Ledger>(); }

// How many entries of a kind stand in the ledger; and in how many Comm calls they moved.
inline int entries(StepKind kind, const std::string& op = "") {
  return static_cast<int>(std::ranges::count_if(ledger().entries(), [&](const LedgerEntry& e) {
    return e.kind == kind && (op.empty() || e.op == op);
  }));
}
inline int calls(StepKind kind, const std::string& op = "") {
  std::vector<int64_t> seen;
  for (const LedgerEntry& e : ledger().entries()) {
    if (e.kind != kind || (!op.empty() && e.op != op)) continue;
    if (std::ranges::find(seen, e.call) == seen.end()) seen.push_back(e.call);
  }
  return static_cast<int>(seen.size());
}

}  // namespace dtensor::testing
