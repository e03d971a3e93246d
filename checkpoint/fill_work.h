// FillWork: what a load takes from which blocks of which files, and how the bytes of a block get
// into the tensors. Reads nothing but elements that lie across blocks. Internal.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/checkpoint/block_plan.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

// Without CRCs to check, blocks only have to be large enough for the disk.
inline constexpr int64_t kPlainBlockBytes = 64 << 10;
inline constexpr int64_t kConvertedAtOnce = 4096;  // elements
// What a worker needs beside its window: elements of the largest dtype.
inline constexpr int64_t kConversionBytes = kConvertedAtOnce * 8;

// One file's part of the work.
struct FileWork {
  int number = 0;  // of the source
  const FillSource* source = nullptr;
  std::span<const FillPiece> pieces;
  std::vector<BlockDemand> demands;  // one for each piece
  int64_t block_bytes = 0;
};

// A worker's own memory.
class FillScratch {
 public:
  std::span<std::byte> bytes(int64_t size);
  const Tensor& elements(DType dtype);

 private:
  Tensor window_;
  Tensor elements_[kDTypes];
};

// The bytes of a window. Where they still have to be compared with their CRC, it is taken of each
// stretch just before that is used, so that the cache has it for both.
class WindowBytes {
 public:
  WindowBytes(std::span<const std::byte> all, bool unchecked)
      : all_(all), seen_(unchecked ? 0 : all.size()), unchecked_(unchecked) {}

  std::span<const std::byte> take(int64_t begin, int64_t size) {
    see(static_cast<size_t>(begin + size));
    return all_.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  }
  bool unchecked() const { return unchecked_; }
  uint32_t crc() {
    see(all_.size());
    return crc_;
  }

 private:
  void see(size_t end);

  std::span<const std::byte> all_;
  size_t seen_;  // of these the CRC was taken
  uint32_t crc_ = 0;
  bool unchecked_;
};

// Several threads may deliver at once, each other blocks.
class FillWork {
 public:
  // `pieces` are ordered by (source, begin_bytes, target). All outlive this.
  FillWork(std::span<const FillSource> sources, std::span<const FillTarget> targets,
           std::span<const FillPiece> pieces);

  const std::vector<FileWork>& files() const { return files_; }

  // Where the bytes of a direct window go.
  std::span<std::byte> place_of(const FileWork& work, const BlockWindow& window);
  // After they were read there.
  void check_place(const FileWork& work, const BlockWindow& window,
                   std::span<const std::byte> bytes) const;
  // Takes what is needed of a window's bytes; unchecked ones are a block. Elements that begin in
  // another window and are converted are read once more, from `file`. CheckpointError as
  // read_checked has it: what the window had for them was written by then.
  void deliver(const FileWork& work, const ReadFile& file, const BlockWindow& window,
               WindowBytes bytes, FillScratch& scratch);

  // Reads a stretch that begins with a block, and compares its blocks with their CRCs one by one,
  // so that the CRC finds the bytes in the cache. CheckpointError naming file, block and tensor.
  void read_checked(const FileWork& work, const ReadFile& file, const BlockWindow& window,
                    std::span<std::byte> into) const;

  // Strided tensors get their values, and every storage that was written its new version.
  void finish();
  // "Overwritten by then, ...", or "Nothing was overwritten".
  std::string overwritten() const;

 private:
  const std::string& name_in(const FileWork& work, const BlockWindow& window, int64_t begin,
                             size_t size) const;
  const FillTarget& target_of(const FileWork& work, int demand) const;
  std::byte* bytes_of_target(const FileWork& work, int demand) const;
  void touch(const FileWork& work, int demand);
  // `begin_bytes`, `size`: of a block that has this CRC.
  void compare(const FileWork& work, const BlockWindow& window, int64_t begin_bytes, size_t size,
               uint32_t crc) const;
  void compare_all(const FileWork& work, const BlockWindow& window, WindowBytes& bytes) const;
  void copy(const FileWork& work, int demand, const BlockWindow& window, WindowBytes& bytes);
  void convert(const FileWork& work, const ReadFile& file, int demand, const BoxRun& run,
               const BlockWindow& window, WindowBytes& bytes, FillScratch& scratch);

  std::span<const FillTarget> targets_;
  std::vector<Tensor> contiguous_;
  std::unique_ptr<std::atomic<bool>[]> touched_;  // by target
  std::vector<FileWork> files_;
};

// The file, which has to have the size that it had.
ReadFile open_source(const FillSource& source);

}  // namespace dtensor::checkpoint
