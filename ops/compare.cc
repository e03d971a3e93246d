#include "dtensor/ops/compare.h"

#include <array>
#include <vector>

#include "dtensor/ops/broadcast.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

using cpu::BinaryOp;

DTensor run(BinaryOp op, const DTensor& a, const DTensor& b, CallSite site) {
  const char* name = cpu::info_of(op).name;
  ops::check_same_dtype(name, {a, b});
  const std::array<DTensor, 2> inputs = {a, b};
  const Rule rule = ops::broadcast_rule(name, inputs, {}, {"a", "b"});
  const ops::Kernel kernel = [op](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::binary(op, in[0], in[1])};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = DType::kBool, .site = site}, {a, b});
}

DTensor run(BinaryOp op, const DTensor& a, double b, CallSite site) {
  const char* name = cpu::info_of(op).name;
  ops::check_number(name, a, b);
  const Rule rule = ops::pointwise_rule(name, a, false);
  const ops::Kernel kernel = [op, b](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::binary(op, in[0], b)};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = DType::kBool, .site = site}, {a});
}

}  // namespace

DTensor eq(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kEq, a, b, site);
}
DTensor ne(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kNe, a, b, site);
}
DTensor lt(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kLt, a, b, site);
}
DTensor le(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kLe, a, b, site);
}
DTensor gt(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kGt, a, b, site);
}
DTensor ge(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kGe, a, b, site);
}
DTensor logical_and(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kAnd, a, b, site);
}
DTensor logical_or(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kOr, a, b, site);
}
DTensor logical_xor(const DTensor& a, const DTensor& b, CallSite site) {
  return run(BinaryOp::kXor, a, b, site);
}

DTensor eq(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kEq, a, b, site); }
DTensor ne(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kNe, a, b, site); }
DTensor lt(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kLt, a, b, site); }
DTensor le(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kLe, a, b, site); }
DTensor gt(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kGt, a, b, site); }
DTensor ge(const DTensor& a, double b, CallSite site) { return run(BinaryOp::kGe, a, b, site); }

}  // namespace dtensor
