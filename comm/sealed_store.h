// A Store over another one, whose values carry a proof that their writer knew the secret: what a
// stranger wrote into a directory, or changed on its way, is an error and not an address.

#pragma once

#include <memory>

#include "dtensor/comm/secret.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {

// Values may be 32 bytes shorter than those of `inner`.
std::shared_ptr<Store> make_sealed_store(std::shared_ptr<Store> inner,
                                         std::shared_ptr<const Secret> secret);

}  // namespace dtensor::comm
