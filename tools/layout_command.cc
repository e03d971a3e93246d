#include "dtensor/tools/layout_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "dtensor/tools/options.h"

namespace dtensor::tools {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(std::span<const int64_t> numbers) {
  return Json(std::vector<int64_t>(numbers.begin(), numbers.end()));
}

std::vector<int> coordinate_of(const Layout& layout, int rank) {
  const Coordinate at = *layout.mesh().coordinate_of(rank);
  return {at.at.begin(), at.at.begin() + at.ndim};
}

}  // namespace

int layout_command(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments, {.values = {"shape"}, .switches = {"json"}, .positional = 1});
  const Shape shape = read_shape(options.required("shape"));
  if (options.positional().empty()) throw UsageError("the layout is missing");
  const Layout layout = read_layout(options.positional()[0], shape);

  std::vector<int> ranks = layout.mesh().ranks();
  std::ranges::sort(ranks);
  Json all = Json::array();
  std::string table =
      fmt::format("{} of {}\n{:>6}  {:<14}{:<20}{}\n", to_string(layout), to_string(layout.shape()),
                  "rank", "coordinate", "offset", "size");
  for (const int rank : ranks) {
    const Box box = layout.box_of(rank);
    const std::vector<int> at = coordinate_of(layout, rank);
    all.push_back({{"rank", rank},
                   {"coordinate", at},
                   {"offset", json_of(box.offset)},
                   {"size", json_of(box.size)}});
    table += fmt::format("{:>6}  {:<14}{:<20}{}\n", rank, fmt::format("[{}]", fmt::join(at, ",")),
                         to_string(box.offset), to_string(box.size));
  }
  out << (options.has("json") ? all.dump() + "\n" : table);
  return 0;
}

}  // namespace dtensor::tools
