#include "dtensor/comm/capabilities_table.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/base/dtype.h"

namespace dtensor::comm {
namespace {

constexpr std::array kReduceOps = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                                   ReduceOp::kAvg};
constexpr std::array kOps = {OpKind::kAllReduce, OpKind::kReduce,    OpKind::kReduceScatter,
                             OpKind::kBroadcast, OpKind::kAllGather, OpKind::kAllToAll,
                             OpKind::kGather,    OpKind::kScatter,   OpKind::kExchange};

bool reduces(OpKind op) {
  return op == OpKind::kAllReduce || op == OpKind::kReduce || op == OpKind::kReduceScatter;
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// Of one operation, dtype and kind of memory.
std::string cell(const Capabilities& c, OpKind op, DType dtype, DeviceType device) {
  constexpr std::string_view kSupport[] = {"-", "staged", "yes"};
  if (!reduces(op)) {
    return std::string(kSupport[static_cast<size_t>(c.support(op, dtype, ReduceOp::kSum, device))]);
  }
  std::vector<std::string> taken;
  for (const ReduceOp reduce : kReduceOps) {
    const Support support = c.support(op, dtype, reduce, device);
    if (support == Support::kNone) continue;
    taken.push_back(std::string(name_of(reduce)) +
                    (support == Support::kStaged ? " (staged)" : ""));
  }
  return taken.empty() ? "-" : listed(taken);
}

// Keys of equal values put together, in order of the first of each.
template <class Value>
using Groups = std::vector<std::pair<std::vector<std::string>, Value>>;
template <class Value>
void put(Groups<Value>& groups, const std::string& key, const Value& value) {
  const auto known = std::ranges::find(groups, value, [](const auto& g) { return g.second; });
  if (known != groups.end()) return known->first.push_back(key);
  groups.push_back({{key}, value});
}

std::string table(const Capabilities& c, DeviceType device) {
  using Column = std::vector<std::string>;  // by dtype
  Groups<Column> columns;
  for (const OpKind op : kOps) {
    Column column;
    for (int d = 0; d < kDTypes; ++d) column.push_back(cell(c, op, static_cast<DType>(d), device));
    put(columns, "`" + std::string(name_of(op)) + "`", column);
  }
  Groups<std::vector<std::string>> rows;
  bool any = false;
  for (size_t d = 0; d < kDTypes; ++d) {
    std::vector<std::string> row;
    for (const auto& [names, column] : columns) row.push_back(column[d]);
    any = any || std::ranges::any_of(row, [](const std::string& s) { return s != "-"; });
    put(rows, std::string(name_of(static_cast<DType>(d))), row);
  }
  if (!any) return "";
  std::string text = device == DeviceType::kCpu ? "| CPU memory |" : "| CUDA memory |";
  std::string line = "|---|";
  for (const auto& [names, column] : columns) {
    text += " " + listed(names) + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const auto& [names, row] : rows) {
    text += "| " + listed(names) + " |";
    for (const std::string& s : row) text += " " + s + " |";
    text += "\n";
  }
  return text + "\n";
}

}  // namespace

std::string capabilities_table(const Capabilities& capabilities) {
  std::string text = table(capabilities, DeviceType::kCpu) + table(capabilities, DeviceType::kCuda);
  text += std::string("Sums of 16-bit types are made in ") +
          (capabilities.float32_sums_of_16_bit ? "float32 and rounded once" : "their own dtype") +
          "; the order of a sum is " + (capabilities.fixed_order ? "fixed" : "not fixed") + ".\n";
  return text;
}

}  // namespace dtensor::comm
