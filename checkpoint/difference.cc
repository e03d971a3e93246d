#include "dtensor/checkpoint/difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/checkpoint/stream_chunks.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {
namespace {

class Side {
 public:
  explicit Side(const Contents& contents) : contents_(contents) {
    for (const StoredFile& f : contents.files) sources_.push_back({f.path, f.bytes, f.block_crcs});
  }

  const StoredTensor& tensor(const std::string& name) const { return contents_.tensors.at(name); }

  // The parts, each as a tensor of its own; every block of a file is read once.
  std::vector<Tensor> read(std::span<const WantedChunk> parts, int64_t buffer_bytes) const {
    std::vector<Tensor> values;
    std::vector<FillTarget> targets;
    std::vector<FillPiece> pieces;
    for (const WantedChunk& part : parts) {
      const StoredTensor& stored = tensor(part.name);
      const auto target = static_cast<int>(targets.size());
      values.push_back(Tensor::empty(part.box.size, stored.dtype));
      targets.push_back({part.name, values.back(), part.box, stored.dtype});
      for_each_part(stored, part.box, [&](const StoredChunk& c, const Box& taken) {
        pieces.push_back({c.file, target, c.begin_bytes, c.box, taken});
      });
    }
    fill(sources_, targets, std::move(pieces), {.buffer_bytes = buffer_bytes});
    return values;
  }

 private:
  const Contents& contents_;
  std::vector<FillSource> sources_;
};

// Of whole numbers, exactly: those beyond 2^53 are no doubles.
template <class T>
double max_whole_difference(const Tensor& a, const Tensor& b) {
  uint64_t most = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const T p = a.data<T>()[i];
    const T q = b.data<T>()[i];
    const auto larger = static_cast<uint64_t>(std::max(p, q));
    most = std::max(most, larger - static_cast<uint64_t>(std::min(p, q)));
  }
  return static_cast<double>(most);
}

// The largest difference of two dense tensors of one shape.
double max_difference(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype() &&
      std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.size_bytes())) == 0) {
    return 0;
  }
  if (!is_floating(a.dtype())) {
    return visit_dtype(a.dtype(), [&]<class T>(T) {
      if constexpr (std::is_integral_v<T>) return max_whole_difference<T>(a, b);
      return 0.0;
    });
  }
  constexpr int64_t kAtOnce = 1 << 16;
  double most = 0;
  const Tensor flat_a = a.view({a.numel()});
  const Tensor flat_b = b.view({b.numel()});
  for (int64_t at = 0; at < a.numel(); at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, a.numel() - at);
    const Tensor x = flat_a.narrow(0, at, count).to(DType::kFloat64);
    const Tensor y = flat_b.narrow(0, at, count).to(DType::kFloat64);
    for (int64_t i = 0; i < count; ++i) {
      const double p = x.data<double>()[i];
      const double q = y.data<double>()[i];
      if (p == q || (std::isnan(p) && std::isnan(q))) continue;
      const double d = std::abs(p - q);
      most = std::max(most, std::isnan(d) ? std::numeric_limits<double>::infinity() : d);
    }
  }
  return most;
}

std::string kind_of(const StoredTensor& t) {
  return fmt::format("{}{}", name_of(t.dtype), to_string(t.shape));
}

class Comparison {
 public:
  Comparison(const Contents& first, const Contents& second, const ConvertOptions& options)
      : a_(first), b_(second), options_(options) {}

  // Compares the values in windows of several tensors, or of a part of one.
  std::map<std::string, double> run(const std::vector<std::string>& names) {
    const int64_t window_bytes = options_.buffer_bytes / 4;
    std::vector<WantedChunk> window;
    int64_t used = 0;
    for (const std::string& name : names) {
      const StoredTensor& x = a_.tensor(name);
      const int64_t element = std::max(size_of(x.dtype), size_of(b_.tensor(name).dtype));
      const Box whole{Shape::filled(x.shape.ndim(), 0), x.shape};
      for (const Box& part : row_major_parts(whole, window_bytes / element)) {
        const int64_t bytes = part.numel() * element;
        if (used + bytes > window_bytes) {
          compare(window);
          used = 0;
        }
        window.push_back({name, x.dtype, part});
        used += bytes;
      }
    }
    compare(window);
    return most_;
  }

 private:
  void compare(std::vector<WantedChunk>& window) {
    const auto x = a_.read(window, options_.buffer_bytes / 4);
    const auto y = b_.read(window, options_.buffer_bytes / 4);
    for (size_t i = 0; i < window.size(); ++i) {
      double& most = most_[window[i].name];
      most = std::max(most, max_difference(x[i], y[i]));
      if (options_.progress) options_.progress(x[i].size_bytes());
    }
    window.clear();
  }

  Side a_;
  Side b_;
  const ConvertOptions& options_;
  std::map<std::string, double> most_;
};

}  // namespace

std::vector<Difference> find_differences(const Contents& first, const Contents& second,
                                         double tolerance, const ConvertOptions& options) {
  const auto in_first = selected(first, options);
  const auto in_second = selected(second, options);
  std::set<std::string> names(in_first.begin(), in_first.end());
  names.insert(in_second.begin(), in_second.end());
  std::vector<std::string> comparable;
  for (const std::string& name : names) {
    const auto x = first.tensors.find(name);
    const auto y = second.tensors.find(name);
    if (x == first.tensors.end() || y == second.tensors.end()) continue;
    const bool floating = is_floating(x->second.dtype) && is_floating(y->second.dtype);
    if (x->second.shape == y->second.shape && (floating || x->second.dtype == y->second.dtype)) {
      comparable.push_back(name);
    }
  }
  const auto most = Comparison(first, second, options).run(comparable);
  std::vector<Difference> out;
  for (const std::string& name : names) {
    const auto x = first.tensors.find(name);
    const auto y = second.tensors.find(name);
    if (y == second.tensors.end()) {
      out.push_back({name, "only in first", kind_of(x->second), {}});
      continue;
    }
    if (x == first.tensors.end()) {
      out.push_back({name, "only in second", kind_of(y->second), {}});
      continue;
    }
    const std::string kinds = fmt::format("{} and {}", kind_of(x->second), kind_of(y->second));
    if (x->second.shape != y->second.shape) out.push_back({name, "shape", kinds, {}});
    if (x->second.dtype != y->second.dtype) out.push_back({name, "dtype", kinds, {}});
    const auto it = most.find(name);
    if (it != most.end() && it->second > tolerance) {
      out.push_back({name, "values", fmt::format("differ by at most {}", it->second), it->second});
    }
  }
  return out;
}

}  // namespace dtensor::checkpoint
