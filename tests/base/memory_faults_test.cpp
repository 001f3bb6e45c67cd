#include "base/machine/signals.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <csignal>

#include "base/files/regular_file.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::memory_faults_test {
namespace {

constexpr size_t kPage = 4096;

int read_from(const std::byte* memory) {
  return static_cast<int>(*static_cast<const volatile std::byte*>(memory));
}

}  // namespace

TEST_CASE("a mapped file that shrinks is an error with path and offset, not a signal") {
  const TempFolder directory;
  const auto path = directory.write("model.safetensors", std::string(3 * kPage, 'x'));
  const ChildResult result = in_child([&path] {
    install_sigbus_handler("test");
    install_sigbus_handler("test: rank 1");
    const MappedFile file(path);
    if (::truncate(path.c_str(), 100) != 0) return 99;
    return read_from(file.bytes().data() + 2 * kPage + 8);
  });
  CHECK(result.status == 1);
  CHECK(result.err == fmt::format("test: rank 1: error: cannot read {} at offset {}: it has only "
                                  "100 bytes now: it was truncated while in use\n",
                                  path.string(), 2 * kPage + 8));
}

TEST_CASE("what was cut is read up to there, and control bytes of a path are not shown") {
  const TempFolder directory;
  const auto path = directory.write("a\x1b[31m", std::string(2 * kPage, 'x'));
  const ChildResult result = in_child([&path] {
    install_sigbus_handler("test");
    const MappedFile file(path);
    if (::truncate(path.c_str(), kPage) != 0) return 99;
    if (read_from(file.bytes().data() + kPage - 1) != 'x') return 98;
    return read_from(file.bytes().data() + kPage);
  });
  CHECK(result.status == 1);
  CHECK(result.err.find("a?[31m at offset 4096: ") != std::string::npos);
}

TEST_CASE("shared memory that cannot be had is named") {
  const ChildResult result = in_child([] {
    install_sigbus_handler("test");
    const int fd = ::memfd_create("zeroth", MFD_CLOEXEC);
    void* memory = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return read_from(static_cast<std::byte*>(memory));  // no byte of it was reserved
  });
  CHECK(result.status == 1);
  CHECK(result.err ==
        "test: error: cannot use /memfd:zeroth (deleted) at offset 0: out of memory\n");
}

TEST_CASE("a fault that somebody sends, or that no mapping explains, ends by its signal, told") {
  const ChildResult result = in_child([] {
    install_sigbus_handler("test");
    ::raise(SIGBUS);
    ::raise(SIGBUS);
    return 0;
  });
  CHECK(result.status == -SIGBUS);
  CHECK(result.err.starts_with("test: error: the memory at 0x"));
  CHECK(result.err.ends_with("cannot be accessed: no file is mapped there\n"));
}

}  // namespace zeroth::memory_faults_test
