// A whole file as read-only memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace zeroth {

// Pages are read as they are touched. If the file shrinks meanwhile: base/memory_faults.h tells.
class MappedFile {
 public:
  // Throws an Error with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // The file as numbers; its size must be a multiple of theirs.
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Takes whole pages inside the range out of this process's memory; a later access reads them
  // again.
  void forget(std::span<const std::byte> range) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace zeroth
