#include "model/hf/safetensors_writer.h"

#include <ATen/ops/isinf.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "base/text/units.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

void require_finite(const std::filesystem::path& target, const std::string& name,
                    const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const auto [low, high] = at::aminmax(tensor.detach());  // a NaN is both
  for (const double value : {low.item<double>(), high.item<double>()}) {
    if (!std::isfinite(value)) {
      throw Error("{} is not saved: parameter {} holds {}", target.string(), name,
                  canonicalize_nan(value));
    }
  }
}

torch::Tensor to_saved_dtype(const std::string& name, const torch::Tensor& tensor,
                             torch::ScalarType dtype) {
  torch::Tensor saved = tensor.detach().to(torch::kCPU, dtype).contiguous();
  if (dtype != torch::kHalf || tensor.scalar_type() == torch::kHalf) return saved;
  // A value that fp16 cannot hold would be infinite when the file is loaded.
  if (at::isinf(saved).any().item<bool>() && !at::isinf(tensor).any().item<bool>()) {
    throw Error("{} has a value of {:g}, beyond the 65504 that fp16 holds: save in bf16 or fp32",
                name, tensor.detach().abs().max().item<double>());
  }
  return saved;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, torch::ScalarType dtype,
                                     const std::vector<PlannedTensor>& tensors, Access access)
    : path_(path) {
  const SafetensorsLayout layout = plan_safetensors(dtype, tensors);
  for (const PlannedTensor& tensor : tensors) {
    regions_[tensor.name] = {tensor.shape, saved_dtype(tensor, dtype),
                             layout.offsets.at(tensor.name)};
  }
  if (access == Access::kCreate) {
    create(layout);
    return;
  }
  fd_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (fd_.get() < 0 || ::fstat(fd_.get(), &status) != 0)
    throw_write_error(path, " cannot be opened");
  if (!S_ISREG(status.st_mode) || status.st_size != layout.size)
    throw Error("{} is not the file of {} bytes that another rank has made", path.string(),
                layout.size);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const SafetensorsLayout& layout)
    : path_(path), appended_to_(std::ssize(layout.header)) {
  create(layout);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  write_bytes(bytes.data(), bytes.size(), appended_to_);
  appended_to_ += std::ssize(bytes);
}

void SafetensorsWriter::create(const SafetensorsLayout& layout) {
  fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd_.get() < 0) throw_write_error(path_, " cannot be created");
  // Reserve the space, so that a full disk is found before the first tensor is written, if the file
  // system supports it.
  const bool reserved = ::fallocate(fd_.get(), 0, 0, layout.size) == 0;
  if (!reserved && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    throw_write_error(path_, fmt::format(": reserving {} bytes failed", layout.size));
  }
  // Another machine's writer must not write beyond the end: an NFS client fills the page before its
  // bytes with zeros there.
  if (!reserved && ::ftruncate(fd_.get(), layout.size) != 0 && errno != EINVAL)
    throw_write_error(path_, fmt::format(": extending to {} bytes failed", layout.size));
  write_bytes(layout.header.data(), layout.header.size(), 0);
}

void SafetensorsWriter::write_bytes(const void* data, size_t size, int64_t offset) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::pwrite(fd_.get(), bytes, size, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      throw_write_error(path_, fmt::format(": writing {} bytes at offset {} failed", size, offset));
    }
    bytes += done;
    offset += done;
    size -= static_cast<size_t>(done);
  }
}

void SafetensorsWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto it = regions_.find(name);
  ZEROTH_CHECK(it != regions_.end(), "{} is not planned for {}", name, path_.string());
  TensorRegion& region = it->second;
  ZEROTH_CHECK(!region.written, "{} is written twice", name);
  ZEROTH_CHECK(tensor.sizes() == torch::IntArrayRef(region.shape), "{} is [{}], planned [{}]", name,
               fmt::join(tensor.sizes(), ", "), fmt::join(region.shape, ", "));
  const torch::Tensor bytes = to_saved_dtype(name, tensor, region.dtype);
  write_bytes(bytes.data_ptr(), bytes.nbytes(), region.offset);
  region.written = true;
}

int64_t SafetensorsWriter::finish() {
  if (::fsync(fd_.get()) != 0 || ::close(fd_.release()) != 0) throw_write_error(path_);
  return std::ranges::count_if(regions_, [](const auto& named) { return named.second.written; });
}

}  // namespace zeroth::model
