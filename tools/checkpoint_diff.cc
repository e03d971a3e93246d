// dtensor checkpoint diff: what differs between two checkpoints, whatever wrote them.

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/difference.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/tools/checkpoint_commands.h"
#include "dtensor/tools/checkpoint_options.h"
#include "dtensor/tools/progress.h"

namespace dtensor::tools {
namespace {

using Json = nlohmann::ordered_json;

double read_tolerance(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0)) {
    throw UsageError("--tolerance: \"" + text + "\" is no number from 0 on");
  }
  return value;
}

}  // namespace

int checkpoint_diff(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments, {.values = {"tolerance", "include", "exclude", "buffer"},
                                    .switches = {"json", "progress"},
                                    .positional = 2});
  checkpoint::ConvertOptions convert = convert_options(options);
  const double tolerance = read_tolerance(options.value_or("tolerance", "0"));
  argument(options, 1);
  const auto first = checkpoint::open_stored(existing_path(options, 0));
  const auto second = checkpoint::open_stored(existing_path(options, 1));
  std::vector<checkpoint::Difference> differences;
  {
    Progress progress(err, "diff", bytes_of_tensors(first, convert), show_progress(options));
    convert.progress = [&](int64_t bytes) { progress.add(bytes); };
    differences = checkpoint::find_differences(first, second, tolerance, convert);
  }
  auto json = Json::array();
  for (const auto& d : differences) {
    Json most = nullptr;
    // JSON has no infinity.
    if (d.max_difference)
      most = std::isinf(*d.max_difference) ? Json("inf") : Json(*d.max_difference);
    json.push_back({{"name", d.name},
                    {"what", d.what},
                    {"text", d.text},
                    {"max_difference", std::move(most)}});
    if (!options.has("json")) out << d.name << ": " << d.what << ": " << d.text << "\n";
  }
  if (options.has("json")) out << json.dump() << "\n";
  return differences.empty() ? 0 : 1;
}

}  // namespace dtensor::tools
