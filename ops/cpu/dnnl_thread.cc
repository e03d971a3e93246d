#include "dtensor/ops/cpu/dnnl_thread.h"

#include <dlfcn.h>

namespace dtensor::cpu {
namespace {

// Looked up by name: it is libdnnl that is linked with an OpenMP library, not we, and which one is
// its choice.
struct OpenMp {
  int (*get_max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT,
                                                               "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT,
                                                                       "omp_set_num_threads"));
};

const OpenMp& open_mp() {
  static const OpenMp found;
  return found;
}

}  // namespace

DnnlThread::DnnlThread()
    : before_(open_mp().get_max_threads != nullptr ? open_mp().get_max_threads() : 1) {
  // The number belongs to the calling thread.
  if (before_ != 1 && open_mp().set_num_threads != nullptr) open_mp().set_num_threads(1);
}

DnnlThread::~DnnlThread() {
  if (before_ != 1 && open_mp().set_num_threads != nullptr) open_mp().set_num_threads(before_);
}

}  // namespace dtensor::cpu
