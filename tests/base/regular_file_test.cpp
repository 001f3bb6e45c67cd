#include "base/files/regular_file.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::regular_file_test {
namespace {

std::string error_of(const std::filesystem::path& path) {
  try {
    read_file(path, 100);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a file is read to its end, also one whose size the system does not know") {
  const TempFolder directory;
  write_text(directory.path() / "a", std::string("x\0y", 3));
  CHECK(read_file(directory.path() / "a", 3) == std::string("x\0y", 3));
  CHECK(read_file("/proc/self/statm", 4096).ends_with("\n"));
  write_text(directory.path() / "empty", "");
  CHECK(read_file(directory.path() / "empty", 0).empty());
}

TEST_CASE("a file beyond the limit is refused with both sizes") {
  const TempFolder directory;
  write_text(directory.path() / "a", std::string(101, 'a'));
  CHECK(error_of(directory.path() / "a") ==
        (directory.path() / "a").string() + " has 101 bytes; the limit is 100");
}

TEST_CASE("what is no file is refused at once, by path and kind") {
  const TempFolder directory;
  const std::string fifo = (directory.path() / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(error_of(fifo) == fifo + " is a FIFO, expected a file");
  CHECK(error_of("/dev/zero") == "/dev/zero is a device, expected a file");
  CHECK(error_of(directory.path()) == directory.path().string() + " is a folder, expected a file");
  const std::string name = (directory.path() / "s").string();
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, name.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(error_of(name) == name + " is a socket, expected a file");
  ::close(socket);
}

TEST_CASE("a missing file is an error with the path and the reason") {
  CHECK(error_of("/nowhere/x") == "cannot open /nowhere/x: No such file or directory");
}

TEST_CASE("a file is seen as text, as bytes and as numbers") {
  const TempFolder directory;
  write_text(directory.path() / "n", std::string("\x01\x00\x03\x02", 4));
  const MappedFile file(directory.path() / "n");
  CHECK(file.size() == 4);
  CHECK(file.as<uint16_t>()[1] == 515);
  CHECK(file.text().substr(2, 2) == "\x03\x02");
  CHECK(file.bytes()[0] == std::byte{1});
}

TEST_CASE("an empty file is empty memory") {
  const TempFolder directory;
  write_text(directory.path() / "empty", "");
  const MappedFile file(directory.path() / "empty");
  CHECK(file.size() == 0);
  CHECK(file.text().empty());
}

TEST_CASE("a moved mapping stays where it is") {
  const TempFolder directory;
  write_text(directory.path() / "a", "abc");
  MappedFile first(directory.path() / "a");
  const MappedFile second(std::move(first));
  CHECK(second.text() == "abc");
}

TEST_CASE("forgotten pages are read again when they are touched") {
  const TempFolder directory;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  write_text(directory.path() / "x", std::string(3 * page + 5, 'z'));
  const MappedFile file(directory.path() / "x");
  const auto bytes = file.bytes();
  CHECK(bytes[2 * page] == std::byte{'z'});
  file.drop_pages(bytes.subspan(1));
  CHECK(bytes[2 * page] == std::byte{'z'});
  CHECK(bytes.back() == std::byte{'z'});
}

TEST_CASE("a missing file and a folder are errors with the path and the reason") {
  const TempFolder directory;
  CHECK_THROWS_WITH_AS(MappedFile("/nowhere/x"),
                       "cannot open /nowhere/x: No such file or directory", Error);
  CHECK_THROWS_WITH_AS(MappedFile{directory.path()},
                       doctest::Contains("is a folder, expected a file"), Error);
}

TEST_CASE("A range of a file is read whole, or an Error names the file") {
  TempFolder directory;
  const auto path = directory.write("f", "0123456789");
  const RegularFile file(path);
  std::string part(4, ' ');
  read_exactly(file.descriptor(), part, 3, path);
  CHECK(part == "3456");
  CHECK(message_of<Error>([&] { read_exactly(file.descriptor(), part, 8, path); }) ==
        path.string() + " was truncated while it was read");
  CHECK(message_of<Error>([&] { read_exactly(-1, part, 0, path); }) ==
        path.string() + ": read failed: Bad file descriptor");
}

}  // namespace zeroth::regular_file_test
