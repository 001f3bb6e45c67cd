#include "base/files/run_path.h"

#include <doctest/doctest.h>

namespace zeroth::run_path_test {

// A test has the run path of every program: $ORIGIN/../lib, the copy of LibTorch in a prefix, the
// LibTorch that it was built with.
TEST_CASE("the folders of the run path are absolute, and $ORIGIN is where the program is") {
  const std::vector<std::filesystem::path> directories = run_path_directories();
  REQUIRE(directories.size() == 3);
  CHECK(directories[0] == program_directory() / "../lib");
  CHECK(directories[1] == program_directory() / "../lib/zeroth/torch/lib");
  CHECK(std::filesystem::exists(directories[2] / "libtorch_cpu.so"));
}

TEST_CASE("A library that is loaded is found on the run path, and another one nowhere") {
  CHECK(find_program_library("libtorch_cpu.so") == run_path_directories()[2] / "libtorch_cpu.so");
  CHECK(find_program_library("libnothing.so") == std::nullopt);
}

}  // namespace zeroth::run_path_test
