// Writes one safetensors file tensor by tensor: the header is planned first, so no tensor waits for
// another.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "model/hf/model_layout.h"

namespace zeroth::model {

// Throws an Error that names both where a value of the parameter is not finite: such a model would
// replace a good one. `target` is what the user calls the model, `tensor` has any floating dtype.
void require_finite(const std::filesystem::path& target, const std::string& name,
                    const torch::Tensor& tensor);

// A contiguous copy on the CPU as a file of this dtype has it. A finite value that float16 cannot
// hold is an Error that names the parameter.
torch::Tensor to_saved_dtype(const std::string& name, const torch::Tensor& tensor,
                             torch::ScalarType dtype);

class SafetensorsWriter {
 public:
  // dtype: float32, float16 or bfloat16, of all tensors. Throws an Error with the path, the bytes
  // and the system's reason, as write() and finish() do.
  SafetensorsWriter(const std::filesystem::path& path, torch::ScalarType dtype,
                    const std::vector<PlannedTensor>& tensors);

  // tensor: any floating dtype, strides and device, of the planned shape; each name once, in any
  // order. Throws as to_saved_dtype().
  void write(const std::string& name, const torch::Tensor& tensor);

  // Every planned tensor must have been written. Blocks until the bytes are on the disk.
  void finish();

 private:
  struct TensorRegion {
    std::vector<int64_t> shape;
    int64_t offset = 0;
    bool written = false;
  };
  void reserve(int64_t size);
  // Throws, by errno.
  [[noreturn]] void fail(const std::string& operation) const;
  void write_bytes(const void* data, size_t size, int64_t offset);

  std::filesystem::path path_;
  torch::ScalarType dtype_;
  std::map<std::string, TensorRegion> regions_;
  FileDescriptor fd_;
};

}  // namespace zeroth::model
