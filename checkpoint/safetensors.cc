#include "dtensor/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"

namespace dtensor::safetensors {
namespace {

constexpr int64_t kLengthBytes = 8;

int64_t bytes_of(const Item& item) {
  int64_t count = size_of(item.dtype);
  for (const int64_t dim : item.shape) {
    if (dim < 0) throw ArgumentError(fmt::format("tensor \"{}\" has the dim {}", item.name, dim));
    count = checked_mul(count, dim);
  }
  return count;
}

}  // namespace

struct File::State {
  checkpoint::ReadFile file;
  int64_t data_offset_bytes;
  Header header;
  std::unordered_map<std::string_view, const Entry*> by_name;
};

File::File(const std::string& path) {
  checkpoint::ReadFile file(path);
  if (file.size_bytes() < kLengthBytes) {
    throw CheckpointError(
        fmt::format("{} has {} bytes; a safetensors file begins with 8 bytes of header length",
                    path, file.size_bytes()));
  }
  std::array<std::byte, kLengthBytes> raw = {};
  file.read(0, raw);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(raw[i]);
  // Compared before it is added to anything or allocated.
  const auto left = static_cast<uint64_t>(file.size_bytes() - kLengthBytes);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || length > left) {
    throw CheckpointError(
        fmt::format("{}: header length {} at byte 0; at most {} are read, and the file has {} more "
                    "bytes",
                    path, length, kMaxHeaderBytes, left));
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  Header parsed = parse_header(text, static_cast<int64_t>(left - length), path);
  state_ = std::make_unique<State>(
      State{std::move(file), kLengthBytes + static_cast<int64_t>(length), std::move(parsed), {}});
  for (const Entry& e : state_->header.entries) state_->by_name.emplace(e.name, &e);
}

File::~File() = default;
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;

const std::string& File::path() const { return state_->file.path(); }
const std::vector<Entry>& File::entries() const { return state_->header.entries; }
const std::map<std::string, std::string>& File::metadata() const { return state_->header.metadata; }
int64_t File::data_offset_bytes() const { return state_->data_offset_bytes; }
int64_t File::size_bytes() const { return state_->file.size_bytes(); }

const Entry* File::find(std::string_view name) const {
  const auto it = state_->by_name.find(name);
  return it == state_->by_name.end() ? nullptr : it->second;
}

void File::read(int64_t begin_bytes, std::span<std::byte> into) const {
  if (begin_bytes < 0) throw ArgumentError(fmt::format("{}: read at {}", path(), begin_bytes));
  read_raw(checked_add(data_offset_bytes(), begin_bytes), into);
}

void File::read_raw(int64_t begin_bytes, std::span<std::byte> into) const {
  const auto size = static_cast<int64_t>(into.size());
  if (begin_bytes < 0 || size > size_bytes() || begin_bytes > size_bytes() - size) {
    throw ArgumentError(fmt::format("{}: bytes [{}, +{}) were asked for, it has {}", path(),
                                    begin_bytes, size, size_bytes()));
  }
  state_->file.read(begin_bytes, into);
}

std::vector<Entry> entries_of(std::span<const Item> items) {
  std::vector<const Item*> order;
  for (const Item& item : items) order.push_back(&item);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const Item* item) { return size_of(item->dtype); });
  std::vector<Entry> entries;
  std::unordered_map<std::string_view, int> seen;
  int64_t end = 0;
  for (const Item* item : order) {
    if (item->name == "__metadata__" || !seen.emplace(item->name, 0).second) {
      throw ArgumentError(fmt::format("the tensor name \"{}\" is {}", item->name,
                                      item->name == "__metadata__" ? "reserved" : "given twice"));
    }
    const int64_t begin = std::exchange(end, checked_add(end, bytes_of(*item)));
    entries.push_back(Entry{item->name, item->dtype, item->shape, begin, end});
  }
  return entries;
}

std::string header(std::span<const Entry> entries,
                   const std::map<std::string, std::string>& metadata) {
  auto document = nlohmann::ordered_json::object();
  if (!metadata.empty()) document["__metadata__"] = metadata;
  std::string text;
  try {
    // Entry by entry: looking a key up in an ordered object is linear.
    text = document.dump();
    text.pop_back();
    for (const Entry& e : entries) {
      if (text.size() > 1) text += ',';
      text += nlohmann::json(e.name).dump();
      fmt::format_to(std::back_inserter(text),
                     R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                     format_name(e.dtype), fmt::join(e.shape, ","), e.begin_bytes, e.end_bytes);
    }
  } catch (const nlohmann::json::exception& e) {
    throw ArgumentError(
        fmt::format("safetensors header: a name or metadata is not UTF-8: {}", e.what()));
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > static_cast<size_t>(kMaxHeaderBytes)) {
    throw ArgumentError(
        fmt::format("safetensors header: {} bytes, {} are the most; write several files",
                    text.size(), kMaxHeaderBytes));
  }
  std::string length(kLengthBytes, '\0');
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return length + text;
}

void write(const std::string& path, std::span<const Item> items,
           const std::map<std::string, std::string>& metadata) {
  const std::vector<Entry> entries = entries_of(items);
  std::unordered_map<std::string_view, const Item*> by_name;
  for (const Item& item : items) by_name.emplace(item.name, &item);
  const std::string head = header(entries, metadata);
  checkpoint::AtomicFile file(path);
  file.append(checkpoint::bytes_of(head));
  for (const Entry& e : entries) {
    file.append({static_cast<const std::byte*>(by_name.at(e.name)->data),
                 static_cast<size_t>(e.end_bytes - e.begin_bytes)});
  }
  file.prepare();
  file.commit(checkpoint::Existing::kReplace);
}

}  // namespace dtensor::safetensors
