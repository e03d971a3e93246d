#include "dtensor/checkpoint/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/record_text.h"
#include "dtensor/checkpoint/safetensors_header.h"

namespace dtensor::checkpoint {
namespace {

// Writes JSON as it goes: a record of many tensors is no tree in memory.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void plain(std::string_view text) { out_ += text; }
  void number(int64_t v) { fmt::format_to(std::back_inserter(out_), "{}", v); }

  void text(std::string_view t) {
    const bool simple = std::ranges::all_of(
        t, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
    if (!simple) {
      out_ += nlohmann::json(t).dump();  // throws where it is not UTF-8
      return;
    }
    out_ += '"';
    out_ += t;
    out_ += '"';
  }

  void list(const Shape& shape) {
    out_ += '[';
    for (int d = 0; d < shape.ndim(); ++d) {
      if (d > 0) out_ += ',';
      number(shape[d]);
    }
    out_ += ']';
  }

  // f(item) for each, with commas between and brackets around.
  template <class Items, class F>
  void all(std::string_view brackets, const Items& items, const F& f) {
    out_ += brackets[0];
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) out_ += ',';
      f(item);
    }
    out_ += brackets[1];
  }

 private:
  std::string& out_;
};

void write_tensor(Writer& w, const RecordTensor& tensor) {
  w.plain(R"({"name":)");
  w.text(tensor.name);
  w.plain(R"(,"dtype":)");
  w.text(safetensors::format_name(tensor.dtype));
  w.plain(R"(,"shape":)");
  w.list(tensor.shape);
  w.plain(R"(,"chunks":)");
  w.all("[]", tensor.chunks, [&](const RecordChunk& c) {
    w.plain(R"({"file":)");
    w.number(c.file);
    w.plain(R"(,"key":)");
    w.text(c.key);
    w.plain(R"(,"offset":)");
    w.list(c.box.offset);
    w.plain(R"(,"size":)");
    w.list(c.box.size);
    w.plain("}");
  });
  if (tensor.same_on_all) {
    w.plain(R"(,"same_on_all":)");
    w.text(hex_of({{*tensor.same_on_all}}));
  }
  if (tensor.replica) {
    w.plain(R"(,"replica":{"offset":)");
    w.list(tensor.replica->box.offset);
    w.plain(R"(,"size":)");
    w.list(tensor.replica->box.size);
    w.plain(R"(,"crc32c":)");
    w.text(hex_of({{tensor.replica->crc32c}}));
    w.plain("}");
  }
  w.plain("}");
}

void write_body(Writer& w, const Record& record) {
  w.plain(R"({"format":)");
  w.text(record_text::kFormat);
  w.plain(R"(,"version":)");
  w.number(record_text::kVersion);
  w.plain(R"(,"id":)");
  w.text(record.id);
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, int64_t>>{
           {R"(,"step":)", record.step},
           {R"(,"rank":)", record.rank},
           {R"(,"world":)", record.world}}) {
    w.plain(name);
    w.number(value);
  }
  w.plain(R"(,"files":)");
  w.all("[]", record.files, [&](const RecordFile& f) {
    w.plain(R"({"name":)");
    w.text(f.name);
    w.plain(R"(,"bytes":)");
    w.number(f.bytes);
    w.plain(R"(,"crc32c":)");
    w.text(hex_of(f.block_crcs));
    w.plain("}");
  });
  w.plain(R"(,"tensors":)");
  w.all("[]", record.tensors, [&](const RecordTensor& t) { write_tensor(w, t); });
  const auto text_field = [&](const std::pair<const std::string, std::string>& field) {
    w.text(field.first);
    w.plain(":");
    w.text(field.second);
  };
  w.plain(R"(,"aliases":)");
  w.all("{}", record.aliases, text_field);
  w.plain(R"(,"numbers":)");
  w.all("{}", record.numbers, [&](const std::pair<const std::string, int64_t>& field) {
    w.text(field.first);
    w.plain(":");
    w.number(field.second);
  });
  if (!record.texts.empty()) {
    w.plain(R"(,"texts":)");
    w.all("{}", record.texts, text_field);
  }
  w.plain("}");
}

}  // namespace

std::string data_file_name(int rank, int index) {
  const std::string further = index == 0 ? "" : fmt::format("-{}", index);
  return fmt::format("rank-{:05}{}.safetensors", rank, further);
}
std::string record_name(int rank) { return fmt::format("rank-{:05}.record.json", rank); }

std::optional<int> rank_of_record_name(std::string_view name) {
  constexpr std::string_view kPrefix = "rank-";
  constexpr size_t kMaxDigits = 9;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int rank = 0;
  size_t end = kPrefix.size();
  while (end < name.size() && end < kPrefix.size() + kMaxDigits && name[end] >= '0' &&
         name[end] <= '9') {
    rank = rank * 10 + (name[end++] - '0');
  }
  if (name != record_name(rank)) return std::nullopt;
  return rank;
}

std::string chunk_key(std::string_view name, int index) {
  std::string key;
  for (const char c : name) key.append(c == '#' ? 2 : 1, c);
  return index == 0 ? key : fmt::format("{}#{}", key, index);
}

std::string to_text(const Record& record) {
  std::string text;
  try {
    Writer writer(text);
    write_body(writer, record);
  } catch (const nlohmann::json::exception& e) {
    throw ArgumentError(fmt::format("checkpoint: a name is not UTF-8: {}", e.what()));
  }
  const std::string crc = hex_of({{crc32c(bytes_of(text))}});
  return fmt::format("{}{}{}{}{}", record_text::kBefore, crc, record_text::kBetween, text,
                     record_text::kAfter);
}

}  // namespace dtensor::checkpoint
