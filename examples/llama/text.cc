#include "dtensor/examples/llama/text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dtensor/base/error.h"

namespace dtensor::examples {

Text::Text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(path, ignored))
    throw ArgumentError("--data " + path + ": cannot be opened; give a file that exists");
  bytes_.assign(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || bytes_.empty()) {
    throw ArgumentError("--data " + path + ": holds no bytes; give a file with text");
  }
}

Batch Text::batch(int64_t step, int64_t rows, int64_t length) const {
  Batch out{Tensor::empty({rows, length}, DType::kInt64),
            Tensor::empty({rows, length}, DType::kInt64)};
  auto* tokens = out.tokens.data<int64_t>();
  auto* targets = out.targets.data<int64_t>();
  const auto size = static_cast<int64_t>(bytes_.size());
  for (int64_t i = 0; i < rows * length; ++i) {
    const int64_t at = (step * rows * length + i) % size;
    tokens[i] = bytes_[static_cast<size_t>(at)];
    targets[i] = bytes_[static_cast<size_t>((at + 1) % size)];
  }
  return out;
}

int64_t Text::largest() const { return *std::ranges::max_element(bytes_); }

}  // namespace dtensor::examples
