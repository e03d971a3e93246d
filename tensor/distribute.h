// Between whole tensors, local pieces and DTensors: everything that makes a DTensor or moves one.

#pragma once

#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/local.h"
#include "dtensor/tensor/redistribute.h"
