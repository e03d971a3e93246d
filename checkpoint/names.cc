#include "dtensor/checkpoint/names.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

// "a, b and 7 more"
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMostListed = 20;
  const size_t count = std::min(names.size(), kMostListed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  return names.size() > count ? fmt::format("{} and {} more", text, names.size() - count) : text;
}

class Matcher {
 public:
  Matcher(const NamedState& wanted, const StoredNames& stored, const MatchOptions& options)
      : stored_(stored), options_(options) {
    for (const auto& [name, first] : wanted.aliases) further_names_.emplace(first, stored_as(name));
  }

  std::string match(const NamedTensor& t) {
    const std::string name = stored_name(t.name);
    if (name.empty()) {
      const std::string there = stored_as(t.name);
      missing_.push_back(there == t.name ? t.name : fmt::format("{} (for {})", there, t.name));
      return name;
    }
    taken_.insert(name);
    const StoredNames::Kind& kind = stored_.tensors.at(name);
    const bool converts =
        options_.converts && is_floating(kind.dtype) && is_floating(t.value.dtype());
    const bool other_shape = !std::ranges::equal(kind.shape, t.value.shape());
    if (other_shape || (kind.dtype != t.value.dtype() && !converts)) {
      only_dtypes_ =
          only_dtypes_ && !other_shape && is_floating(kind.dtype) && is_floating(t.value.dtype());
      mismatched_.push_back(fmt::format("\"{}\" is {}{} here and {}[{}] there", t.name,
                                        name_of(t.value.dtype()), to_string(t.value.shape()),
                                        name_of(kind.dtype), fmt::join(kind.shape, ",")));
    }
    return name;
  }

  void finish(const std::string& where) {
    std::vector<std::string> unexpected;
    for (const auto& [name, kind] : stored_.tensors) {
      if (taken_.contains(name) || known_further_.contains(name)) continue;
      if (!options_.optional || !options_.optional(name)) unexpected.push_back(name);
    }
    if (missing_.empty() && unexpected.empty() && mismatched_.empty()) return;
    std::string text = where + ":";
    if (!missing_.empty()) text += " missing: " + listed(missing_) + ".";
    if (!unexpected.empty()) text += " Unexpected: " + listed(unexpected) + ".";
    if (!mismatched_.empty()) text += " Mismatched: " + listed(mismatched_) + ".";
    if (!mismatched_.empty() && only_dtypes_) {
      text += " To convert, load with {.dtypes = checkpoint::DTypeChange::kConvert}.";
    }
    throw CheckpointError(text + " Nothing was loaded");
  }

 private:
  std::string stored_as(const std::string& name) const {
    return options_.stored_as ? options_.stored_as(name) : name;
  }

  // By its own name, a further name of it that was stored, or as a further name of a stored one.
  std::string stored_name(const std::string& model_name) {
    const std::string name = stored_as(model_name);
    std::string found = stored_.tensors.contains(name) ? name : "";
    const auto [begin, end] = further_names_.equal_range(model_name);
    for (auto it = begin; it != end; ++it) {
      if (!stored_.tensors.contains(it->second)) continue;
      known_further_.insert(it->second);
      if (found.empty()) found = it->second;
    }
    if (!found.empty()) return found;
    const auto alias = stored_.aliases.find(name);
    const bool is_alias = alias != stored_.aliases.end() && stored_.tensors.contains(alias->second);
    return is_alias ? alias->second : "";
  }

  const StoredNames& stored_;
  const MatchOptions& options_;
  std::multimap<std::string, std::string> further_names_;
  std::set<std::string> taken_;
  std::set<std::string> known_further_;
  std::vector<std::string> missing_;
  std::vector<std::string> mismatched_;
  bool only_dtypes_ = true;  // what is mismatched could be converted
};

}  // namespace

std::vector<std::string> match_names(const NamedState& wanted, const StoredNames& stored,
                                     const std::string& where, const MatchOptions& options) {
  Matcher matcher(wanted, stored, options);
  std::vector<std::string> names;
  for (const NamedTensor& t : wanted.tensors) names.push_back(matcher.match(t));
  matcher.finish(where);
  return names;
}

}  // namespace dtensor::checkpoint
