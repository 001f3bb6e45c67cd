// Replaces io_worker_uring.cpp in a build without liburing.
#include "offload/io_worker.h"

namespace zeroth::offload {

std::string make_uring_worker(const IoWorkerOptions&, IoWorkers&) {
  return "this build has no liburing";
}

}  // namespace zeroth::offload
