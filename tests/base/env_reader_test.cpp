#include "base/env_reader.h"

#include <doctest/doctest.h>

#include <string_view>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::env_reader_test {

TEST_CASE("a variable is a text or a number in a range, and an empty one is none") {
  const auto lookup = [](const char* name) -> const char* {
    const std::string_view wanted = name;
    if (wanted == "EMPTY") return "";
    if (wanted == "SEVEN") return "7";
    if (wanted == "WORD") return "x\n";
    return wanted == "SERVICE" ? "tcp://10.0.0.1:29500" : nullptr;
  };
  const EnvReader reader(lookup), both(lookup, EnvReader::RangeMessage::kBothLimits);
  CHECK_FALSE(reader.has("UNSET"));
  CHECK_FALSE(reader.has("EMPTY"));
  CHECK_FALSE(reader.number("EMPTY", 0));
  CHECK(reader.text("SEVEN") == "7");
  CHECK(reader.number("SEVEN", 7, 7) == 7);
  CHECK(reader.number<double>("SEVEN", 0) == 7.0);
  CHECK(reader.quote("WORD") == "WORD=x\\n");
  const auto error = [](const EnvReader& by, const char* name, int min, int max) {
    return message_of<Error>([&] { by.number(name, min, max); });
  };
  CHECK(error(reader, "SEVEN", 8, 9) ==
        "environment variable SEVEN=7 is not a number of at least 8");
  CHECK(error(reader, "SEVEN", 1, 6) ==
        "environment variable SEVEN=7 is not a number of at most 6");
  CHECK(error(reader, "WORD", 1, 6) ==
        "environment variable WORD=x\\n is not a number of at least 1");
  CHECK(error(both, "SEVEN", 1, 6) == "environment variable SEVEN=7 is not a number from 1 to 6");
  CHECK(error(both, "SERVICE", 1, 6)
            .starts_with("environment variable SERVICE=tcp://10.0.0.1:29500 was set by Kubernetes "
                         "for a service named 'master': set MASTER_PORT"));
}

}  // namespace zeroth::env_reader_test
