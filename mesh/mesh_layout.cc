#include "dtensor/mesh/mesh_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "dtensor/base/text_cursor.h"

namespace dtensor {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15U + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdU;
}

bool is_name(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (!TextCursor::is_of_name(name[i], i != 0)) return false;
  }
  return !name.empty();
}

void check_dim(const MeshDim& dim) {
  if (!is_name(dim.name)) {
    throw ArgumentError(
        fmt::format("mesh: \"{}\" is no name for a dim; a name is a letter, then letters, digits, "
                    "'_', '-' or '.'",
                    dim.name));
  }
  if (dim.size < 1) {
    throw ArgumentError(
        fmt::format("mesh: dim \"{}\" has size {}; give 1 or more", dim.name, dim.size));
  }
  if (dim.weights.empty()) return;
  if (dim.weights.size() != static_cast<size_t>(dim.size)) {
    throw ArgumentError(
        fmt::format("mesh: dim \"{}\" of size {} has {} weights; give one per "
                    "coordinate, or none",
                    dim.name, dim.size, dim.weights.size()));
  }
  if (std::ranges::any_of(dim.weights, [](int64_t w) { return w < 0; }) ||
      std::ranges::all_of(dim.weights, [](int64_t w) { return w == 0; })) {
    throw ArgumentError(fmt::format(
        "mesh: the weights {} of dim \"{}\" must be 0 or more, and one of them positive",
        fmt::join(dim.weights, ","), dim.name));
  }
  int64_t all = 0;
  for (const int64_t w : dim.weights) {
    if (__builtin_add_overflow(all, w, &all)) {
      throw ArgumentError(
          fmt::format("mesh: the weights {} of dim \"{}\" add up to more than 64 "
                      "bits hold; smaller ones of the same ratios do as well",
                      fmt::join(dim.weights, ","), dim.name));
    }
  }
}

int64_t checked_size(const std::vector<MeshDim>& dims) {
  if (dims.size() > kMaxMeshDims) {
    throw ArgumentError(
        fmt::format("mesh: {} dims; a mesh has at most {}", dims.size(), kMaxMeshDims));
  }
  int64_t size = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    check_dim(dims[i]);
    for (size_t j = 0; j < i; ++j) {
      if (dims[i].name == dims[j].name) {
        throw ArgumentError(fmt::format("mesh: two dims are named \"{}\"", dims[i].name));
      }
    }
    size *= dims[i].size;
    if (size > kMaxRanks) {
      throw ArgumentError(fmt::format("mesh: more than {} ranks", kMaxRanks));
    }
  }
  return size;
}

// They cut as none do, and one mesh has one form.
void drop_equal_weights(MeshDim& dim) {
  const auto differs = [&](int64_t w) { return w != dim.weights.front(); };
  if (std::ranges::none_of(dim.weights, differs)) dim.weights.clear();
}

}  // namespace

struct MeshLayout::Data {
  std::vector<MeshDim> dims;
  std::vector<int> ranks;
  std::vector<std::pair<int, int>> index_of_rank;  // sorted by rank
  std::array<int, kMaxMeshDims> strides{};
  uint64_t hash = 0;

  Data(std::vector<MeshDim> d, std::vector<int> r) : dims(std::move(d)), ranks(std::move(r)) {
    const int64_t size = checked_size(dims);
    for (MeshDim& dim : dims) drop_equal_weights(dim);
    if (ranks.empty()) {
      ranks.resize(static_cast<size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    if (static_cast<int64_t>(ranks.size()) != size) {
      throw ArgumentError(fmt::format("mesh: {} ranks for a mesh of {}", ranks.size(), size));
    }
    int stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= dims[i].size;
    }
    index_ranks();
    hash_all();
  }

 private:
  void index_ranks() {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0) {
        throw ArgumentError(fmt::format("mesh: rank {} is negative", ranks[i]));
      }
      index_of_rank.emplace_back(ranks[i], static_cast<int>(i));
    }
    std::ranges::sort(index_of_rank);
    for (size_t i = 1; i < index_of_rank.size(); ++i) {
      if (index_of_rank[i].first == index_of_rank[i - 1].first) {
        throw ArgumentError(fmt::format("mesh: rank {} is given twice; each is there at most once",
                                        index_of_rank[i].first));
      }
    }
  }

  void hash_all() {
    for (const MeshDim& dim : dims) {
      for (const char c : dim.name) hash = mix(hash, static_cast<unsigned char>(c));
      hash = mix(hash, static_cast<uint64_t>(dim.size));
      for (const int64_t w : dim.weights) hash = mix(hash, static_cast<uint64_t>(w));
    }
    for (const int rank : ranks) hash = mix(hash, static_cast<uint64_t>(rank));
  }
};

MeshLayout::MeshLayout() {
  static const auto none = std::make_shared<const Data>(std::vector<MeshDim>{}, std::vector<int>{});
  data_ = none;
}

MeshLayout::MeshLayout(std::vector<MeshDim> dims, std::vector<int> ranks)
    : data_(std::make_shared<const Data>(std::move(dims), std::move(ranks))) {}

int MeshLayout::ndim() const { return static_cast<int>(data_->dims.size()); }
int MeshLayout::size() const { return static_cast<int>(data_->ranks.size()); }
int MeshLayout::size(int dim) const { return data_->dims[static_cast<size_t>(dim)].size; }
const std::string& MeshLayout::name(int dim) const {
  return data_->dims[static_cast<size_t>(dim)].name;
}
std::span<const int64_t> MeshLayout::weights(int dim) const {
  return data_->dims[static_cast<size_t>(dim)].weights;
}

int MeshLayout::dim(std::string_view name) const {
  for (int i = 0; i < ndim(); ++i) {
    if (this->name(i) == name) return i;
  }
  throw ArgumentError(fmt::format("mesh {}: no dim is named \"{}\"{}", to_string(*this), name,
                                  ndim() == 0 ? "; the mesh has no dims" : ""));
}

const std::vector<int>& MeshLayout::ranks() const { return data_->ranks; }

int MeshLayout::rank_at(const Coordinate& coordinate) const {
  int index = 0;
  for (int i = 0; i < ndim(); ++i) {
    index += coordinate[i] * data_->strides[static_cast<size_t>(i)];
  }
  return data_->ranks[static_cast<size_t>(index)];
}

Coordinate MeshLayout::coordinate_at(int index) const {
  Coordinate at;
  at.ndim = ndim();
  for (int i = 0; i < at.ndim; ++i) {
    const int stride = data_->strides[static_cast<size_t>(i)];
    at[i] = index / stride;
    index %= stride;
  }
  return at;
}

std::optional<Coordinate> MeshLayout::coordinate_of(int rank) const {
  const auto& index = data_->index_of_rank;
  const auto found = std::ranges::lower_bound(index, rank, {}, &std::pair<int, int>::first);
  if (found == index.end() || found->first != rank) return std::nullopt;
  return coordinate_at(found->second);
}

std::vector<int> MeshLayout::group(const Coordinate& of, std::span<const int> dims) const {
  size_t size = 1;
  std::array<bool, kMaxMeshDims> seen{};
  for (const int dim : dims) {
    if (dim < 0 || dim >= ndim() || seen[static_cast<size_t>(dim)]) {
      throw ArgumentError(fmt::format("mesh {}: no group over dims {}; give each dim at most once",
                                      to_string(*this), fmt::join(dims, ",")));
    }
    seen[static_cast<size_t>(dim)] = true;
    size *= static_cast<size_t>(this->size(dim));
  }
  std::vector<int> ranks;
  ranks.reserve(size);
  Coordinate at = of;
  for (const int dim : dims) at[dim] = 0;
  for (size_t n = 0; n < size; ++n) {
    ranks.push_back(rank_at(at));
    for (size_t i = dims.size(); i-- > 0;) {  // count up, the last dim fastest
      if (++at[dims[i]] < this->size(dims[i])) break;
      at[dims[i]] = 0;
    }
  }
  return ranks;
}

uint64_t MeshLayout::hash() const { return data_->hash; }

bool operator==(const MeshLayout& a, const MeshLayout& b) {
  if (a.data_ == b.data_) return true;
  if (a.data_->hash != b.data_->hash || a.ndim() != b.ndim()) return false;
  for (int i = 0; i < a.ndim(); ++i) {
    if (a.name(i) != b.name(i) || a.size(i) != b.size(i) ||
        !std::ranges::equal(a.weights(i), b.weights(i))) {
      return false;
    }
  }
  return a.ranks() == b.ranks();
}

std::string to_string(const MeshLayout& mesh) {
  std::string text;
  for (int i = 0; i < mesh.ndim(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ",", mesh.name(i), mesh.size(i));
  }
  const std::vector<int>& ranks = mesh.ranks();
  bool counts_up = true;
  for (size_t i = 0; i < ranks.size(); ++i) counts_up &= ranks[i] == static_cast<int>(i);
  if (counts_up) return text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;  // two in a row are shorter as they are
    text += fmt::format("{}{}", i == 0 ? '@' : ',', ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

ParsedMesh read_mesh(TextCursor& in) {
  ParsedMesh mesh;
  if (in.at_end() || in.sees(':')) return mesh;
  do {
    MeshDim dim;
    dim.name = in.name("the name of a mesh dim");
    in.expect('=');
    const int64_t size = in.number("a size");
    if (size < 1 || size > kMaxRanks) {
      throw ArgumentError(
          fmt::format("mesh: dim \"{}\" has size {}; give 1 to {}", dim.name, size, kMaxRanks));
    }
    dim.size = static_cast<int>(size);
    mesh.dims.push_back(std::move(dim));
  } while (in.eat(','));
  if (!in.eat('@')) return mesh;
  do {
    const int64_t first = in.number("a rank");
    const int64_t last = in.eat('-') ? in.number("the last rank of a range") : first;
    if (first < 0 || last < first || last > INT32_MAX - 1 || last - first >= kMaxRanks) {
      throw ArgumentError(fmt::format("mesh: {}; ranks are 0 to {}, and a range of them counts up",
                                      first == last ? fmt::format("rank {}", first)
                                                    : fmt::format("ranks {} to {}", first, last),
                                      INT32_MAX - 1));
    }
    for (int64_t rank = first; rank <= last; ++rank) mesh.ranks.push_back(static_cast<int>(rank));
    if (static_cast<int64_t>(mesh.ranks.size()) > kMaxRanks) {
      throw ArgumentError(fmt::format("mesh: more than {} ranks", kMaxRanks));
    }
  } while (in.eat(','));
  return mesh;
}

MeshLayout parse_mesh(std::string_view text) {
  TextCursor in(text, "mesh");
  ParsedMesh mesh = read_mesh(in);
  in.expect_end();
  return MeshLayout(std::move(mesh.dims), std::move(mesh.ranks));
}

}  // namespace dtensor
