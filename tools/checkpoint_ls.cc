// dtensor checkpoint ls: the tensors of a checkpoint and where their parts lie. What an attempt
// that is not complete has is listed as well, and it is said that it is not.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/safetensors_header.h"
#include "dtensor/tools/checkpoint_commands.h"
#include "dtensor/tools/checkpoint_options.h"

namespace dtensor::tools {
namespace {

using checkpoint::Contents;
using Json = nlohmann::ordered_json;

struct Listed {
  struct Chunk {
    std::string file;
    std::vector<int64_t> offset;
    std::vector<int64_t> size;
  };
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<Chunk> chunks;
};

std::vector<int64_t> list_of(const Shape& s) { return {s.begin(), s.end()}; }

std::vector<Listed> listed(const Contents& contents) {
  std::vector<Listed> out;
  for (const auto& [name, tensor] : contents.tensors) {
    Listed item{name, tensor.dtype, list_of(tensor.shape), {}};
    for (const auto& c : tensor.chunks) {
      item.chunks.push_back({contents.files[static_cast<size_t>(c.file)].name,
                             list_of(c.box.offset), list_of(c.box.size)});
    }
    out.push_back(std::move(item));
  }
  return out;
}

struct Found {
  std::vector<Listed> tensors;
  std::string incomplete = {};  // why; empty where it is complete
};

Found find_tensors(const std::string& path) {
  if (const auto attempt = checkpoint::attempt_at(path)) {
    const checkpoint::Examined examined = checkpoint::examine(*attempt);
    return {listed(examined.contents), examined.is_complete() ? "" : examined.reason()};
  }
  return {listed(checkpoint::open_stored(path))};
}

}  // namespace

int checkpoint_ls(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments, {.switches = {"json"}, .positional = 1});
  const bool as_json = options.has("json");
  const auto [tensors, incomplete] = find_tensors(existing_path(options, 0));
  auto json = Json::array();
  for (const Listed& t : tensors) {
    auto chunks = Json::array();
    for (const auto& c : t.chunks) {
      chunks.push_back({{"file", c.file}, {"offset", c.offset}, {"size", c.size}});
    }
    json.push_back({{"name", t.name},
                    {"dtype", safetensors::format_name(t.dtype)},
                    {"shape", t.shape},
                    {"chunks", std::move(chunks)}});
    if (as_json) continue;
    out << fmt::format("{:<5} {:<16} {}", safetensors::format_name(t.dtype),
                       fmt::format("[{}]", fmt::join(t.shape, ",")), t.name);
    for (const auto& c : t.chunks) {
      out << fmt::format("  {}[{}+{}]", c.file, fmt::join(c.offset, ","), fmt::join(c.size, ","));
    }
    out << "\n";
  }
  if (as_json) out << json.dump() << "\n";
  if (incomplete.empty()) return 0;
  err << "dtensor checkpoint ls: not complete, listed is what its records have: " << incomplete
      << "\n";
  return 1;
}

}  // namespace dtensor::tools
