#include "base/machine/memory_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::memory_file_test {
namespace {

std::string refusal(const std::string& ticket, const std::string& name = "zeroth-test") {
  try {
    MemoryFile::open(ticket, name);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was opened";
}

// A ticket for descriptor `fd` of this process.
std::string ticket_for(int fd) {
  const std::string own = MemoryFile::create("zeroth-test").ticket();
  struct stat status {};
  REQUIRE(::fstat(fd, &status) == 0);
  return fmt::format("{}:{}:{}:{}", own.substr(0, own.find(':')), ::getpid(), fd, status.st_ino);
}

}  // namespace

TEST_CASE("who has the ticket opens the same memory, for as long as its holder keeps it") {
  MemoryFile file = MemoryFile::create("zeroth-test");
  file.seal_size(4096);
  const std::string ticket = file.ticket();
  const MemoryFile again = MemoryFile::open(ticket, "zeroth-test");
  REQUIRE(::pwrite(file.get(), "word", 4, 100) == 4);
  char text[4];
  REQUIRE(::pread(again.get(), text, 4, 100) == 4);
  CHECK(std::string_view(text, 4) == "word");
  CHECK(again.inode() == file.inode());
  CHECK(again.size() == 4096);
  file.close();
  CHECK(refusal(ticket).starts_with("cannot open /proc/"));
}

TEST_CASE("the size of shared memory cannot be changed once it is fixed, by nobody") {
  MemoryFile file = MemoryFile::create("zeroth-test");
  CHECK_FALSE(file.has_sealed_size());
  file.seal_size(4096);
  const MemoryFile again = MemoryFile::open(file.ticket(), "zeroth-test");
  CHECK(again.has_sealed_size());
  for (const int size : {0, 8192}) {
    CHECK(::ftruncate(again.get(), size) == -1);
    CHECK(errno == EPERM);
  }
}

TEST_CASE("a ticket that names anything but this memory is refused, and nothing is opened by it") {
  const TempFolder directory;
  const MemoryFile file = MemoryFile::create("zeroth-test");
  const std::string ticket = file.ticket();
  CHECK(refusal(ticket, "zeroth-other")
            .ends_with(" is not the shared memory 'zeroth-other' of this run"));
  CHECK(refusal(ticket + "1").find("belongs to another process") != std::string::npos);
  CHECK(refusal("another" + ticket.substr(ticket.find(':'))) == "its creator runs on another host");

  const FileDescriptor plain(::open((directory.path() / "file").c_str(), O_RDWR | O_CREAT, 0600));
  CHECK(refusal(ticket_for(plain.get())).find("is not the shared memory") != std::string::npos);
  // Opening a FIFO for reading and writing would disturb who listens there.
  REQUIRE(::mkfifo((directory.path() / "fifo").c_str(), 0600) == 0);
  const FileDescriptor fifo(::open((directory.path() / "fifo").c_str(), O_RDWR));
  CHECK(refusal(ticket_for(fifo.get())).find("is not the shared memory") != std::string::npos);
  const FileDescriptor device(::open("/dev/zero", O_RDWR));
  CHECK(refusal(ticket_for(device.get())) != "it was opened");
}

TEST_CASE("a text that is no ticket is told as such, whatever is in it") {
  const std::string kernel = ticket_for(0).substr(0, ticket_for(0).find(':'));
  for (const char* rest : {"", ":", ":1", ":1:2", ":1:2:3:4", ":-1:2:3", ":1:2:x", ":1:2:3 ",
                           ":99999999999999999999:2:3", ":1:/../../etc/passwd:3"}) {
    CAPTURE(rest);
    CHECK(refusal(kernel + rest) == "invalid ticket of shared memory");
  }
}

TEST_CASE("another user's memory is refused, and ours to another user" * in_neighbours) {
  if (!may_become_nobody()) return;
  const Nobody stranger([] {
    static MemoryFile file = MemoryFile::create("zeroth-test");
    file.seal_size(4096);
    return file.ticket();
  });
  CHECK(refusal(stranger.said()).find("belongs to user 65534, not to this process's user 0") !=
        std::string::npos);
  const MemoryFile ours = MemoryFile::create("zeroth-test");
  const Nobody thief([ticket = ours.ticket()] { return refusal(ticket); });
  CHECK(thief.said().ends_with(": Permission denied"));
}

}  // namespace zeroth::memory_file_test
