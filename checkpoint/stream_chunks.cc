#include "dtensor/checkpoint/stream_chunks.h"

#include <algorithm>
#include <utility>

#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {
namespace {

void cut_rows(const Box& box, int dim, int64_t most, std::vector<Box>& out) {
  if (box.numel() <= most || dim == box.size.ndim()) {
    out.push_back(box);
    return;
  }
  int64_t row = 1;  // elements of one index of `dim`
  for (int d = dim + 1; d < box.size.ndim(); ++d) row *= box.size[d];
  const int64_t rows = std::max<int64_t>(1, most / row);
  for (int64_t at = 0; at < box.size[dim]; at += rows) {
    Box part = box;
    part.offset[dim] += at;
    part.size[dim] = std::min(rows, box.size[dim] - at);
    cut_rows(part, dim + 1, most, out);
  }
}

// Collects parts until the buffer is full.
class Window {
 public:
  Window(const Contents& contents, int64_t buffer_bytes)
      : contents_(contents), buffer_(Tensor::empty({buffer_bytes}, DType::kUInt8)) {
    for (const StoredFile& f : contents.files) sources_.push_back({f.path, f.bytes, f.block_crcs});
  }

  bool fits(int64_t bytes) const { return used_ + bytes <= buffer_.numel(); }

  void add(const WantedChunk& chunk, const Box& part) {
    const StoredTensor& stored = contents_.tensors.at(chunk.name);
    const auto target = static_cast<int>(targets_.size());
    auto* place = static_cast<std::byte*>(buffer_.raw()) + used_;
    used_ += part.numel() * size_of(chunk.dtype);
    targets_.push_back(
        {chunk.name, Tensor::wrap(place, part.size, chunk.dtype, nullptr), part, stored.dtype});
    for_each_part(stored, part, [&](const StoredChunk& c, const Box& taken) {
      pieces_.push_back({c.file, target, c.begin_bytes, c.box, taken});
    });
  }

  std::span<const std::byte> read(int64_t buffer_bytes) {
    fill(sources_, targets_, std::move(pieces_), {.buffer_bytes = buffer_bytes});
    pieces_ = {};
    targets_.clear();
    return {static_cast<const std::byte*>(buffer_.raw()),
            static_cast<size_t>(std::exchange(used_, 0))};
  }

 private:
  const Contents& contents_;
  Tensor buffer_;
  int64_t used_ = 0;
  std::vector<FillSource> sources_;
  std::vector<FillTarget> targets_;
  std::vector<FillPiece> pieces_;
};

}  // namespace

std::vector<Box> row_major_parts(const Box& box, int64_t most_elements) {
  std::vector<Box> out;
  if (!box.empty()) cut_rows(box, 0, std::max<int64_t>(1, most_elements), out);
  return out;
}

void stream_chunks(const Contents& contents, std::span<const WantedChunk> chunks,
                   int64_t buffer_bytes, const std::function<void(std::span<const std::byte>)>& f) {
  // Half is for what is read, half for what is read through.
  const int64_t window_bytes = std::max<int64_t>(buffer_bytes / 2, 64);
  Window window(contents, window_bytes);
  for (const WantedChunk& chunk : chunks) {
    const int64_t element = size_of(chunk.dtype);
    for (const Box& part : row_major_parts(chunk.box, window_bytes / element)) {
      if (!window.fits(part.numel() * element)) f(window.read(window_bytes));
      window.add(chunk, part);
    }
  }
  f(window.read(window_bytes));
}

}  // namespace dtensor::checkpoint
