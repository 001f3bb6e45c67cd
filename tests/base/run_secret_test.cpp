#include "base/files/run_secret.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::run_secret_test {

TEST_CASE("a run's secret is that of the variable or of the file, and not of both") {
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  std::ofstream(path) << "correct horse battery\n";
  ::chmod(path.c_str(), 0600);
  CHECK(run_secret({}, {}) == "");
  CHECK(run_secret("0123456789abcdef", {}) == "0123456789abcdef");
  CHECK(run_secret({}, path) == "correct horse battery");
  CHECK_THROWS_WITH_AS(run_secret("0123456789abcdef", path), doctest::Contains("only one may be"),
                       Error);
}

TEST_CASE("a secret that is too short is refused without telling it") {
  CHECK_THROWS_WITH_AS(
      run_secret("0123456789abcde", {}),
      "environment variable ZEROTH_SECRET: a secret of 15 characters, expected at least 16", Error);
}

}  // namespace zeroth::run_secret_test
