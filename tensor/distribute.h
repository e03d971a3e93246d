// Between whole tensors, local pieces and DTensors: everything that makes a DTensor or moves one.

#pragma once

#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/from_rank.h"
#include "dtensor/tensor/local.h"
#include "dtensor/tensor/redistribute.h"
#include "dtensor/tensor/state_dict.h"
