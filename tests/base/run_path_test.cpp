#include "base/run_path.h"

#include <doctest/doctest.h>

namespace zeroth {

// A test has the run path of every program: $ORIGIN/../lib, the copy of LibTorch in a prefix, the
// LibTorch that it was built with.
TEST_CASE("the folders of the run path are absolute, and $ORIGIN is where the program is") {
  const std::vector<std::filesystem::path> folders = run_path_folders();
  REQUIRE(folders.size() == 3);
  CHECK(folders[0] == program_folder() / "../lib");
  CHECK(folders[1] == program_folder() / "../lib/zeroth/torch/lib");
  CHECK(std::filesystem::exists(folders[2] / "libtorch_cpu.so"));
}

}  // namespace zeroth
