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

// What a person reads; a script asks for JSON.
constexpr size_t kMaxTableRanks = 256;

std::vector<int> coordinate_of(const Layout& layout, int rank) {
  const Coordinate at = *layout.mesh().coordinate_of(rank);
  return {at.at.begin(), at.at.begin() + at.ndim};
}

Json json_of(const Layout& layout, int rank) {
  const Box box = layout.box_of(rank);
  return {{"rank", rank},
          {"coordinate", coordinate_of(layout, rank)},
          {"offset", json_of(box.offset)},
          {"size", json_of(box.size)}};
}

}  // namespace

int layout_command(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"shape", "rank"}, .switches = {"json"}, .positional = 1});
  const Shape shape = read_shape(options.required("shape"));
  if (options.positional().empty()) throw UsageError("the layout is missing");
  const Layout layout = read_layout(options.positional()[0], shape);

  std::vector<int> ranks = layout.mesh().ranks();
  std::ranges::sort(ranks);
  if (options.has("rank")) {
    const int rank = read_rank(options.required("rank"));
    if (!layout.mesh().contains(rank)) {
      throw UsageError(
          fmt::format("rank {} is not in the mesh {}", rank, to_string(layout.mesh())));
    }
    ranks = {rank};
  }
  if (options.has("json")) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      out << (i == 0 ? '[' : ',') << json_of(layout, ranks[i]).dump();
    }
    out << "]\n";
    return 0;
  }
  out << fmt::format("{} of {}\n{:>6}  {:<14}{:<20}{}\n", to_string(layout),
                     to_string(layout.shape()), "rank", "coordinate", "offset", "size");
  const size_t shown = std::min(ranks.size(), kMaxTableRanks);
  for (size_t i = 0; i < shown; ++i) {
    const Box box = layout.box_of(ranks[i]);
    out << fmt::format("{:>6}  {:<14}{:<20}{}\n", ranks[i],
                       fmt::format("[{}]", fmt::join(coordinate_of(layout, ranks[i]), ",")),
                       to_string(box.offset), to_string(box.size));
  }
  if (shown < ranks.size()) {
    out << fmt::format("and {} more ranks; --rank R shows one, --json all\n", ranks.size() - shown);
  }
  return 0;
}

}  // namespace dtensor::tools
