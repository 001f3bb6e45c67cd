#include "model/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace zeroth::model {
namespace {

const char* dtype_name(torch::ScalarType dtype) {
  if (dtype == torch::kFloat32) return "F32";
  if (dtype == torch::kFloat16) return "F16";
  ZEROTH_CHECK(dtype == torch::kBFloat16, "no checkpoint holds {}", c10::toString(dtype));
  return "BF16";
}

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, torch::ScalarType dtype,
                                     const std::vector<PlannedTensor>& tensors)
    : path_(path), dtype_(dtype) {
  const auto width = static_cast<int64_t>(c10::elementSize(dtype));
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    const int64_t end = offset + element_count(tensor.shape) * width;
    header[tensor.name] = {
        {"dtype", dtype_name(dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    const bool added = slots_.try_emplace(tensor.name, Slot{tensor.shape, offset}).second;
    ZEROTH_CHECK(added, "{} is planned twice", tensor.name);
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  for (auto& [name, slot] : slots_) slot.offset += static_cast<int64_t>(8 + length);

  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error("{} cannot be created: {}", path.string(), std::strerror(errno));
  write_bytes(&length, 8, 0);
  write_bytes(text.data(), text.size(), 8);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void SafetensorsWriter::write_bytes(const void* data, size_t size, int64_t offset) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::pwrite(fd_, bytes, size, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw Error("{} cannot be written: {}", path_.string(), std::strerror(errno));
    bytes += done;
    offset += done;
    size -= static_cast<size_t>(done);
  }
}

void SafetensorsWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto it = slots_.find(name);
  ZEROTH_CHECK(it != slots_.end(), "{} is not planned for {}", name, path_.string());
  Slot& slot = it->second;
  ZEROTH_CHECK(!slot.written, "{} is written twice", name);
  ZEROTH_CHECK(tensor.sizes() == torch::IntArrayRef(slot.shape), "{} is [{}], planned [{}]", name,
               fmt::join(tensor.sizes(), ", "), fmt::join(slot.shape, ", "));
  const torch::Tensor bytes = tensor.detach().to(torch::kCPU, dtype_).contiguous();
  write_bytes(bytes.data_ptr(), bytes.nbytes(), slot.offset);
  slot.written = true;
}

void SafetensorsWriter::finish() {
  for (const auto& [name, slot] : slots_) ZEROTH_CHECK(slot.written, "{} was not written", name);
  const bool on_disk = ::fsync(fd_) == 0;
  const int reason = errno;
  const bool closed = ::close(fd_) == 0;
  fd_ = -1;
  if (!on_disk || !closed) {
    throw Error("{} cannot be written: {}", path_.string(),
                std::strerror(on_disk ? errno : reason));
  }
}

}  // namespace zeroth::model
