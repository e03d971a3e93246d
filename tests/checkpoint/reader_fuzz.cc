// A libFuzzer target for what reads files that are not trusted. The first byte of the input chooses
// the reader, the rest is what it reads: a safetensors header or file, a commit record (its body,
// in a frame with a right CRC), or any JSON. Each may throw CheckpointError, and do nothing else.
//   bazel build --config=fuzz //tests/checkpoint:reader_fuzz
//   bazel-bin/tests/checkpoint/reader_fuzz -max_total_time=300 NEW_INPUTS tests/data/fuzz

#include "dtensor/tests/checkpoint/reader_fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/json_reader.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"

namespace dtensor {
namespace {

void require(bool holds) {
  if (!holds) abort();
}

// What was accepted has to keep the promises of the format.
void check_entries(const std::vector<safetensors::Entry>& entries, int64_t data_bytes) {
  int64_t end = 0;
  for (const safetensors::Entry& e : entries) {
    require(e.begin_bytes == end);
    const bool empty = std::ranges::find(e.shape, 0) != e.shape.end();
    int64_t bytes = empty ? 0 : size_of(e.dtype);
    for (const int64_t dim : e.shape) {
      require(dim >= 0);
      require(empty || !__builtin_mul_overflow(bytes, dim, &bytes));
    }
    require(e.end_bytes - e.begin_bytes == bytes);
    end = e.end_bytes;
  }
  require(end == data_bytes);
}

void read_header(std::string_view text) {
  const int64_t data_bytes = text.empty() ? 0 : static_cast<unsigned char>(text.back());
  const auto header = safetensors::parse_header(text, data_bytes, "fuzz");
  check_entries(header.entries, data_bytes);
}

void read_file(std::string_view bytes) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  require(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  try {
    const safetensors::File file("/proc/self/fd/" + std::to_string(fd));
    check_entries(file.entries(), file.size_bytes() - file.data_offset_bytes());
    for (const safetensors::Entry& e : file.entries()) {
      std::string data(static_cast<size_t>(e.end_bytes - e.begin_bytes), '\0');
      file.read(e.begin_bytes, std::as_writable_bytes(std::span(data)));
    }
  } catch (const CheckpointError&) {
    close(fd);
    throw;
  }
  close(fd);
}

void read_record(std::string_view body) {
  const std::vector<uint32_t> crc = {checkpoint::crc32c(checkpoint::bytes_of(body))};
  std::string text = R"({"crc32c":")" + checkpoint::hex_of(crc) + R"(","record":)";
  text.append(body).append("}\n");
  const auto record = checkpoint::parse_record(text, "fuzz");
  // It can be written, and comes back.
  const auto again = checkpoint::parse_record(checkpoint::to_text(record), "fuzz");
  require(checkpoint::to_text(again) == checkpoint::to_text(record));
}

void read_json(std::string_view text) {
  checkpoint::JsonReader json(text, "fuzz");
  json.skip();
  json.finish();
}

}  // namespace

void fuzz_one(std::span<const uint8_t> input) {
  if (input.empty()) return;
  const std::string_view rest(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    switch (input[0] % 4) {
      case 0:
        return read_header(rest);
      case 1:
        return read_file(rest);
      case 2:
        return read_record(rest);
      default:
        return read_json(rest);
    }
  } catch (const CheckpointError&) {
    // What is not right is said so.
  }
}

}  // namespace dtensor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dtensor::fuzz_one({data, size});
  return 0;
}
