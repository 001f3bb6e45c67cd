// A SafetensorsWriter writes one safetensors file tensor by tensor. The header is planned first, so
// tensors may come in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/machine/file_descriptor.h"
#include "device/tensor.h"
#include "model/hf/model_layout.h"

namespace zeroth::model {

// Throws an Error that names both the target and the parameter if a value of it is not finite: such
// a model would replace a good one. `target` is what the user calls the model; `tensor` has any
// floating dtype.
void require_finite(const std::filesystem::path& target, const std::string& name,
                    const torch::Tensor& tensor);

// Returns a contiguous copy on the CPU, in the form that a file of this dtype stores. Throws an
// Error that names the parameter for a finite value that float16 cannot hold.
torch::Tensor to_saved_dtype(const std::string& name, const torch::Tensor& tensor,
                             torch::ScalarType dtype);

class SafetensorsWriter {
 public:
  // The file is created, or, if another writer of the same arguments writes other tensors of it,
  // opened.
  enum class Access { kCreate, kOpen };
  // The file is of `dtype`: see plan_safetensors(). Throws an Error with the path,
  // the bytes and the system's reason, as write() and finish() do.
  SafetensorsWriter(const std::filesystem::path& path, torch::ScalarType dtype,
                    const std::vector<PlannedTensor>& tensors, Access access = Access::kCreate);

  // Creates a file of tensors that append() writes in the layout's order.
  SafetensorsWriter(const std::filesystem::path& path, const SafetensorsLayout& layout);

  // Writes the next bytes of the file, which begin after the header.
  void append(std::span<const std::byte> bytes);

  // Writes a tensor of any floating dtype, strides and device, of the planned shape; each name
  // once, in any order. Throws as to_saved_dtype() does.
  void write(const std::string& name, const torch::Tensor& tensor);

  // Blocks until the bytes are on disk. Returns how many tensors this writer has written; the
  // caller checks that all are.
  int64_t finish();

 private:
  struct TensorRegion {
    std::vector<int64_t> shape;
    torch::ScalarType dtype = torch::kFloat;
    int64_t offset = 0;
    bool written = false;
  };
  void create(const SafetensorsLayout& layout);
  void write_bytes(const void* data, size_t size, int64_t offset);

  std::filesystem::path path_;
  int64_t appended_to_ = 0;  // the next byte that append() writes
  std::map<std::string, TensorRegion> regions_;
  FileDescriptor fd_;
};

}  // namespace zeroth::model
