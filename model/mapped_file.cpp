#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace zeroth::model {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error("{} cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status = {};
  void* data = nullptr;
  if (::fstat(fd, &status) == 0) {
    size_ = static_cast<size_t>(status.st_size);
    if (size_ > 0) data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int reason = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    throw Error("{} cannot be mapped: {}", path.string(), std::strerror(reason));
  }
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::forget(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace zeroth::model
