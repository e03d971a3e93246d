#include "dtensor/checkpoint/attempt.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

std::optional<int64_t> read_number(std::string_view digits) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && v >= 0;
  return is_number ? std::optional(v) : std::nullopt;
}

// Takes "-<letter><number>" off the end of `id`; -1 where it does not end so.
int64_t take_number(std::string_view& id, char letter) {
  const size_t dash = id.rfind('-');
  if (dash == std::string_view::npos || dash + 1 >= id.size() || id[dash + 1] != letter) return -1;
  const auto number = read_number(id.substr(dash + 2));
  if (!number) return -1;
  id = id.substr(0, dash);
  return *number;
}

struct IdOrder {
  std::string_view time;
  int64_t generation;
  int64_t save;
  std::string_view whole;

  explicit IdOrder(std::string_view id) : whole(id) {
    save = take_number(id, 's');
    generation = take_number(id, 'g');
    time = id.substr(0, id.find('-'));
  }
  auto key() const { return std::tuple(time, generation, save, whole); }
};

}  // namespace

std::string attempt_id(std::string_view run_id, int64_t generation, int64_t save) {
  return fmt::format("{}-g{}-s{}", run_id, generation, save);
}

std::string attempt_name(int64_t step, std::string_view id) {
  return fmt::format("{}{}.{}", kPrefix, step, id);
}

bool id_is_earlier(std::string_view a, std::string_view b) {
  return IdOrder(a).key() < IdOrder(b).key();
}

bool is_of_one_run(std::string_view a, std::string_view b) {
  return take_number(a, 's') >= 0 && take_number(b, 's') >= 0 && a == b;
}

std::optional<Attempt> attempt_of(const std::string& run_dir, std::string_view name) {
  const size_t dot = name.find('.');
  if (!name.starts_with(kPrefix) || dot == std::string_view::npos || dot + 1 == name.size()) {
    return std::nullopt;
  }
  const auto step = read_number(name.substr(kPrefix.size(), dot - kPrefix.size()));
  if (!step) return std::nullopt;
  return Attempt{(std::filesystem::path(run_dir) / name).string(), std::string(name),
                 std::string(name.substr(dot + 1)), *step};
}

std::vector<Attempt> list_attempts(const std::string& run_dir) {
  std::vector<Attempt> attempts;
  std::error_code error;
  std::filesystem::directory_iterator it(run_dir, error);
  if (error == std::errc::no_such_file_or_directory) return attempts;
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code ignored;  // an entry that vanishes meanwhile is not an attempt
    if (!it->is_directory(ignored)) continue;
    if (auto attempt = attempt_of(run_dir, it->path().filename().string())) {
      attempts.push_back(std::move(*attempt));
    }
  }
  if (error) {
    throw CheckpointError(
        fmt::format("cannot read the directory {}: {}", run_dir, error.message()));
  }
  std::ranges::sort(attempts, [](const Attempt& a, const Attempt& b) {
    return a.step != b.step ? a.step > b.step : id_is_earlier(b.id, a.id);
  });
  return attempts;
}

}  // namespace dtensor::checkpoint
