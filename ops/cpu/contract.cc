#include "dtensor/ops/cpu/contract.h"

#include <string>
#include <vector>

#include "dtensor/ops/cpu/gemm.h"

namespace dtensor::cpu {
namespace {

bool has(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

// t as a stack of matrices: the batch's dims as they are, so that no strides are in the way, and
// two groups of letters as a dim each. Of many dims the batch is one too.
Tensor stacked(const Tensor& t, std::string_view letters, std::string_view batch,
               std::string_view rows, std::string_view columns) {
  std::vector<std::string_view> groups;
  if (batch.size() + 2 > kMaxDims) {
    groups.push_back(batch);
  } else {
    for (size_t i = 0; i < batch.size(); ++i) groups.push_back(batch.substr(i, 1));
  }
  groups.push_back(rows);
  groups.push_back(columns);
  std::vector<int> order;
  Shape shape;
  for (const std::string_view group : groups) {
    int64_t size = 1;
    for (const char letter : group) {
      order.push_back(static_cast<int>(letters.find(letter)));
      size *= t.shape()[order.back()];
    }
    shape.push_back(size);
  }
  return t.permute(order).reshape(shape);
}

}  // namespace

Tensor contract(const Tensor& a, const Tensor& b, const ContractLetters& l) {
  std::string batch;
  std::string inner;
  std::string rows;
  std::string columns;
  for (const char letter : l.a) {
    const bool in_b = has(l.b, letter);
    (!in_b ? rows : has(l.out, letter) ? batch : inner) += letter;
  }
  for (const char letter : l.b) {
    if (!has(l.a, letter)) columns += letter;
  }
  const Tensor c =
      matmul(stacked(a, l.a, batch, rows, inner), stacked(b, l.b, batch, inner, columns));

  const std::string found = batch + rows + columns;
  Shape shape;
  std::vector<int> order;
  for (const char letter : found) {
    const size_t in_a = l.a.find(letter);
    const bool of_a = in_a != std::string_view::npos;
    shape.push_back(of_a ? a.shape()[static_cast<int>(in_a)]
                         : b.shape()[static_cast<int>(l.b.find(letter))]);
  }
  for (const char letter : l.out) order.push_back(static_cast<int>(found.find(letter)));
  return c.reshape(shape).permute(order);
}

}  // namespace dtensor::cpu
