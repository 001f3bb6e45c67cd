#include "comm/secret_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm {
namespace {

std::string refusal(const std::string& path) {
  try {
    read_secret_file(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was read";
}

}  // namespace

TEST_CASE("a secret is what its file holds, without the end of the line") {
  const TempFolder folder;
  const std::string path = folder.path() / "secret";
  std::ofstream(path) << "correct horse battery\r\n";
  ::chmod(path.c_str(), 0600);
  CHECK(read_secret_file(path) == "correct horse battery");
}

TEST_CASE("a secret that others may read, or that is no file, is refused") {
  const TempFolder folder;
  const std::string path = folder.path() / "secret";
  CHECK(refusal(path) == "ZEROTH_SECRET_FILE=" + path + ": No such file or directory");
  std::ofstream(path) << "correct horse battery";
  ::chmod(path.c_str(), 0640);
  CHECK(refusal(path) ==
        "ZEROTH_SECRET_FILE=" + path + ": others may use it (mode 640); chmod 600");
  CHECK(refusal(folder.path()).ends_with(": not a file"));
  const std::string fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(refusal(fifo).ends_with(": not a file"));
}

TEST_CASE("a secret in another user's file is refused" * in_neighbours) {
  if (!may_become_nobody()) return;
  const TempFolder folder;
  const std::string path = folder.path() / "secret";
  std::ofstream(path) << "correct horse battery";
  ::chmod(path.c_str(), 0600);
  REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  CHECK(refusal(path).ends_with(": it belongs to user 65534, expected 0"));
}

}  // namespace zeroth::comm
