// A file mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace zeroth::model {

class MappedFile {
 public:
  // Throws an Error with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Takes whole pages inside the range out of this process's memory; a later access reads them
  // again.
  void forget(std::span<const std::byte> range) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace zeroth::model
