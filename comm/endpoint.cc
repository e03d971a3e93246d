#include "dtensor/comm/endpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>

#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {
namespace {

constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxTimeoutSeconds = 7 * 24 * 3600;

[[noreturn]] void refuse(std::string_view url, std::string_view why) {
  throw ArgumentError(
      fmt::format("comm URL \"{}\": {}; write it as gloo://host:port?rank=0&size=4", url, why));
}

std::string decode(std::string_view url, std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    const char* begin = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) {
      refuse(url, fmt::format("\"{}\" has a % that no two hexadecimal digits follow", text));
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

void read_options(std::string_view url, std::string_view query, Endpoint& e) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view item = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = item.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      refuse(url, fmt::format("\"{}\" is no name=value", item));
    }
    const auto [it, added] = e.options.try_emplace(decode(url, item.substr(0, equals)),
                                                   decode(url, item.substr(equals + 1)));
    if (!added) refuse(url, fmt::format("\"{}\" is given twice", it->first));
  }
}

// Moves an option that every backend has out of the map.
bool take(Endpoint& e, const char* name, int64_t low, int64_t high, int64_t* out) {
  const auto it = e.options.find(name);
  if (it == e.options.end()) return false;
  *out = parse_integer(name, it->second, low, high);
  e.options.erase(it);
  return true;
}

Endpoint read_url(std::string_view url) {
  Endpoint e;
  const size_t colon = url.find("://");
  if (colon == 0 || colon == std::string_view::npos) refuse(url, "it has no scheme");
  e.scheme = std::string(url.substr(0, colon));
  std::string_view rest = url.substr(colon + 3);
  const size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view authority = rest.substr(0, question);
  if (!authority.empty()) {
    try {
      const internal::HostPort address = internal::parse_host_port(authority);
      e.host = address.host;
      e.port = address.port;
    } catch (const ArgumentError& error) {
      refuse(url, error.what());
    }
  }
  rest.remove_prefix(std::min(question + 1, rest.size()));
  read_options(url, rest, e);
  int64_t seconds = 0;
  if (take(e, "timeout", 1, kMaxTimeoutSeconds, &seconds)) {
    e.deadline = Deadline::after(std::chrono::seconds(seconds));
  }
  return e;
}

}  // namespace

int64_t parse_integer(std::string_view name, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) {
    throw ArgumentError(fmt::format("{}=\"{}\" is no integer", name, text));
  }
  if (value < low || value > high) {
    throw ArgumentError(fmt::format("{}={} is outside {} to {}", name, value, low, high));
  }
  return value;
}

Endpoint parse_url(std::string_view url) {
  Endpoint e = read_url(url);
  int64_t size = 1;
  int64_t rank = 0;
  const bool has_size = take(e, "size", 1, kMaxSize, &size);
  const bool has_rank = take(e, "rank", 0, kMaxSize, &rank);
  if (has_rank != has_size) {
    refuse(url, has_rank ? "it has a rank but no size" : "it has a size but no rank");
  }
  if (!has_rank && e.scheme != "local") refuse(url, "it has no rank and no size");
  if (rank >= size) refuse(url, fmt::format("rank {} is outside a world of size {}", rank, size));
  e.rank = static_cast<int>(rank);
  e.size = static_cast<int>(size);
  take(e, "generation", 0, std::numeric_limits<int64_t>::max(), &e.generation);
  return e;
}

Endpoint parse_url_of_launched(std::string_view url_or_scheme, int rank, int size,
                               int64_t generation) {
  const bool bare = url_or_scheme.find("://") == std::string_view::npos;
  Endpoint e = bare ? read_url(std::string(url_or_scheme) + "://") : read_url(url_or_scheme);
  for (const char* name : {"rank", "size", "generation"}) {
    if (e.options.count(name) != 0) {
      throw ArgumentError(fmt::format(
          "comm URL \"{}\" says {}=, and so does the launcher; leave it out", url_or_scheme, name));
    }
  }
  e.rank = rank;
  e.size = size;
  e.generation = generation;
  return e;
}

}  // namespace dtensor::comm
