#include "comm/nccl.h"
#include "device/gpu.h"

namespace zeroth::comm {

Nccl& load_nccl() {
  return reinterpret_cast<NcclEntry>(device::gpu_entry(kNcclEntry))();
}

}  // namespace zeroth::comm
