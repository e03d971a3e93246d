// Bag: a module that holds the tensors it is given, of any dtype, mesh and placement.

#pragma once

#include <string>
#include <string_view>

#include "dtensor/nn/module.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::testing {

class Bag : public nn::Module {
 public:
  std::string_view kind() const override { return "Bag"; }

  nn::Parameter add(const std::string& name, const DTensor& value) {
    const nn::Parameter p = add_parameter(name, value.shape());
    p.value().set_requires_grad(false);
    p.value().replace(value);
    return p;
  }
  void tie(const std::string& name, const nn::Parameter& other) { tie_parameter(name, other); }

 protected:
  DTensor forward(const nn::Inputs& inputs) override { return inputs.at(0); }
};

}  // namespace dtensor::testing
