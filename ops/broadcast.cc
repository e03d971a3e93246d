#include "dtensor/ops/broadcast.h"

#include <cmath>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor::ops {

Rule broadcast_rule(std::string_view op, std::span<const DTensor> inputs,
                    const InlineVector<Rule::InputSet, 3>& linear,
                    const InlineVector<std::string_view, 6>& names) {
  Shape shape;
  for (const DTensor& x : inputs) shape = cpu::broadcast_shape(shape, x.shape());
  const std::string out = letters_of(shape.ndim());
  Rule rule{.op = op, .letters = {}, .linear = linear, .names = names};
  for (const DTensor& x : inputs) {
    if (!rule.letters.empty() || &x != inputs.data()) rule.letters += ",";
    for (int d = 0; d < x.ndim(); ++d) {
      const int at = shape.ndim() - x.ndim() + d;
      char letter = out[static_cast<size_t>(at)];
      if (x.size(d) != shape[at]) {
        letter = static_cast<char>(letter - 'a' + 'A');
        if (rule.uncut.find(letter) == std::string::npos) rule.uncut += letter;
      }
      rule.letters += letter;
    }
  }
  rule.letters += "->" + out;
  return rule;
}

std::string pointwise_letters(int operands, int ndim) {
  const std::string l = letters_of(ndim);
  std::string letters = l;
  for (int i = 1; i < operands; ++i) letters += "," + l;
  return letters + "->" + l;
}

Rule pointwise_rule(std::string_view op, const DTensor& a, bool linear) {
  Rule rule{.op = op, .letters = pointwise_letters(1, a.ndim())};
  if (linear) rule.linear = {{0}};
  return rule;
}

void check_number(std::string_view op, const DTensor& a, double number) {
  if (!a.defined()) throw ArgumentError(std::string(op) + ": an operand is an empty handle");
  if (is_floating(a.dtype())) return;
  if (number == std::floor(number) && number >= -0x1p63 && number < 0x1p63) return;
  throw ArgumentError(std::string(op) + ": " + std::to_string(number) + " and a tensor of " +
                      std::string(name_of(a.dtype())) + "; cast it first");
}

DTensor scalar_like(std::string_view op, const DTensor& a, double number) {
  check_number(op, a, number);
  const bool wraps = !is_floating(a.dtype()) && a.dtype() != DType::kBool;
  return DTensor(wraps ? Tensor::full({}, number, DType::kInt64).to(a.dtype())
                       : Tensor::full({}, number, a.dtype()));
}

}  // namespace dtensor::ops
