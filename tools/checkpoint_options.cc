#include "dtensor/tools/checkpoint_options.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::tools {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

}  // namespace

const std::string& argument(const Options& options, size_t index) {
  if (options.positional().size() <= index) throw UsageError("an argument is missing");
  return options.positional()[index];
}

const std::string& existing_path(const Options& options, size_t index) {
  const std::string& path = argument(options, index);
  std::error_code error;
  const bool is_there = std::filesystem::exists(path, error);
  if (error) throw CheckpointError("cannot look at " + path + ": " + error.message());
  if (!is_there) throw UsageError(path + " is not there");
  return path;
}

ShowProgress show_progress(const Options& options) {
  return options.has("progress") ? ShowProgress::kAlways : ShowProgress::kOnTerminal;
}

checkpoint::ConvertOptions convert_options(const Options& options) {
  checkpoint::ConvertOptions convert;
  convert.include = split(options.value_or("include", ""));
  convert.exclude = split(options.value_or("exclude", ""));
  convert.buffer_bytes = read_count(options.value_or("buffer", "16"), "--buffer", 1) << 20;
  return convert;
}

int64_t read_count(const std::string& text, std::string_view what, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int64_t kMost = int64_t{1} << 40;
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > kMost) {
    throw UsageError(std::string(what) + ": \"" + text + "\" is no whole number from " +
                     std::to_string(least) + " on");
  }
  return value;
}

int64_t read_bytes(const std::string& text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double factor = 0;
  for (const auto& [name, bytes] :
       std::vector<std::pair<std::string_view, double>>{{"", 1},
                                                        {"KB", 1e3},
                                                        {"MB", 1e6},
                                                        {"GB", 1e9},
                                                        {"KiB", 1024},
                                                        {"MiB", 1048576},
                                                        {"GiB", 1073741824}}) {
    if (unit == name) factor = bytes;
  }
  constexpr double kMost = 1e18;
  const double bytes = value * factor;
  if (error != std::errc() || !(bytes >= 1) || bytes > kMost) {
    throw UsageError(std::string(what) + ": \"" + text +
                     "\" is no number of bytes, as 5GB or 512MiB");
  }
  return static_cast<int64_t>(bytes);
}

int64_t bytes_of_tensors(const checkpoint::Contents& contents,
                         const checkpoint::ConvertOptions& options) {
  int64_t bytes = 0;
  for (const std::string& name : checkpoint::selected(contents, options)) {
    const auto& t = contents.tensors.at(name);
    bytes += t.shape.numel() * size_of(t.dtype);
  }
  return bytes;
}

}  // namespace dtensor::tools
