#include "dtensor/checkpoint/replica_check.h"

#include <fmt/core.h>

#include <algorithm>

namespace dtensor::checkpoint {

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

void ReplicaCheck::add(const RecordTensor& tensor, int rank) {
  if (!tensor.replica) return;
  const Box& box = tensor.replica->box;
  std::vector<int64_t> key(box.offset.begin(), box.offset.end());
  key.insert(key.end(), box.size.begin(), box.size.end());
  Parts& parts = tensors_[tensor.name];
  parts.shape = tensor.shape;
  Part& part = parts.by_box[key];
  part.box = box;
  part.ranks[tensor.replica->crc32c].push_back(rank);
}

std::vector<DifferingReplicas> ReplicaCheck::differing() const {
  std::vector<DifferingReplicas> out;
  for (const auto& [name, parts] : tensors_) {
    for (const auto& [key, part] : parts.by_box) {
      if (part.ranks.size() < 2) continue;
      std::vector<std::vector<int>> groups;
      for (const auto& [crc, ranks] : part.ranks) {
        groups.push_back(ranks);
        std::ranges::sort(groups.back());
      }
      std::ranges::sort(groups, {}, [](const auto& ranks) { return ranks.front(); });
      std::string who;
      for (const auto& ranks : groups) {
        who += fmt::format("{}rank{} {}", who.empty() ? "" : "; ", ranks.size() > 1 ? "s" : "",
                           rank_ranges(ranks));
      }
      out.push_back(
          {name,
           fmt::format("tensor \"{}\" {}: {} had {} different values on its holders: "
                       "{}",
                       name, to_string(parts.shape), to_string(part.box), groups.size(), who)});
    }
  }
  return out;
}

}  // namespace dtensor::checkpoint
