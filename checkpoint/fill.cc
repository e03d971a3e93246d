#include "dtensor/checkpoint/fill.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/block_reader.h"
#include "dtensor/checkpoint/box_runs.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::checkpoint {
namespace {

// Elements that are converted at once.
constexpr int64_t kConvertedAtOnce = 1 << 16;

class Filler {
 public:
  Filler(std::span<const FillTarget> targets, std::vector<bool>& touched)
      : targets_(targets), touched_(touched), contiguous_(targets.size()) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const Tensor& local = targets[i].local;
      contiguous_[i] = local.is_contiguous() ? local : local.clone();
    }
  }

  void read(const FillPiece& piece, BlockReader& reader) {
    const auto index = static_cast<size_t>(piece.target);
    const FillTarget& target = targets_[index];
    touched_[index] = true;
    target.local.storage()->bump_version();
    for_each_run(piece.part, piece.chunk, target.box, [&](const BoxRun& run) {
      if (target.stored == target.local.dtype()) {
        copy(piece, run, contiguous_[index], reader);
      } else {
        convert(piece, run, contiguous_[index], reader);
      }
    });
  }

  // Into tensors that are strided.
  void finish() {
    for (size_t i = 0; i < targets_.size(); ++i) {
      const Tensor& local = targets_[i].local;
      if (touched_[i] && !local.is_contiguous()) kernels::copy(contiguous_[i], local);
    }
  }

 private:
  void copy(const FillPiece& piece, const BoxRun& run, const Tensor& into, BlockReader& reader) {
    const int64_t size = size_of(into.dtype());
    const std::span bytes(static_cast<std::byte*>(into.raw()) + run.dst * size,
                          static_cast<size_t>(run.count * size));
    reader.copy(piece.begin_bytes + run.src * size, bytes);
    check_bytes(bytes, into.dtype(), targets_[static_cast<size_t>(piece.target)].name);
  }

  void convert(const FillPiece& piece, const BoxRun& run, const Tensor& into, BlockReader& reader) {
    const DType stored = targets_[static_cast<size_t>(piece.target)].stored;
    for (int64_t done = 0; done < run.count; done += kConvertedAtOnce) {
      const int64_t count = std::min(kConvertedAtOnce, run.count - done);
      const Tensor from = Tensor::empty({count}, stored);
      reader.copy(piece.begin_bytes + (run.src + done) * size_of(stored),
                  {static_cast<std::byte*>(from.raw()), static_cast<size_t>(from.size_bytes())});
      kernels::cast(from, into.view({into.numel()}).narrow(0, run.dst + done, count));
    }
  }

  std::span<const FillTarget> targets_;
  std::vector<bool>& touched_;
  std::vector<Tensor> contiguous_;
};

const safetensors::File& open(const FillSource& source, std::optional<safetensors::File>& opened) {
  opened.emplace(source.path);
  if (opened->size_bytes() == source.bytes) return *opened;
  throw CheckpointError(fmt::format("{} has {} bytes now, it had {} just before", source.path,
                                    opened->size_bytes(), source.bytes));
}

std::string overwritten(std::span<const FillTarget> targets, const std::vector<bool>& touched) {
  constexpr int kMostListed = 20;
  std::string names;
  int count = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (touched[i] && count++ < kMostListed) names += (names.empty() ? "" : ", ") + targets[i].name;
  }
  if (count == 0) return "Nothing was overwritten";
  if (count > kMostListed) names += fmt::format(", and {} more", count - kMostListed);
  return "Overwritten by then, the last one perhaps in part: " + names;
}

}  // namespace

void fill(std::span<const FillSource> sources, std::span<const FillTarget> targets,
          std::vector<FillPiece> pieces, int64_t buffer_bytes) {
  std::ranges::sort(
      pieces, {}, [](const FillPiece& p) { return std::tuple(p.source, p.begin_bytes, p.target); });
  std::vector<bool> touched(targets.size());
  Filler filler(targets, touched);
  try {
    for (size_t i = 0; i < pieces.size();) {
      const size_t begin = i;
      const FillSource& source = sources[static_cast<size_t>(pieces[i].source)];
      // One file is open at a time, however many ranks have saved.
      std::optional<safetensors::File> opened;
      const safetensors::File& file = source.file != nullptr ? *source.file : open(source, opened);
      BlockReader reader(file, source.block_crcs, buffer_bytes);
      for (; i < pieces.size() && pieces[i].source == pieces[begin].source; ++i) {
        const FillPiece& piece = pieces[i];
        const int64_t size = size_of(targets[static_cast<size_t>(piece.target)].stored);
        for_each_run(piece.part, piece.chunk, piece.part, [&](const BoxRun& run) {
          reader.want(piece.begin_bytes + run.src * size, run.count * size);
        });
      }
      // What the header says is used only after its bytes have been found whole.
      if (!source.block_crcs.empty()) {
        reader.want(0, file.data_offset_bytes());
        reader.check(0, file.data_offset_bytes());
      }
      for (size_t p = begin; p < i; ++p) filler.read(pieces[p], reader);
    }
  } catch (const CheckpointError& e) {
    filler.finish();
    throw CheckpointError(fmt::format("{}. {}", e.what(), overwritten(targets, touched)));
  }
  filler.finish();
}

}  // namespace dtensor::checkpoint
