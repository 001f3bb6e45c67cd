#include "monitor/crc32c.h"

#include <doctest/doctest.h>

#include <string>

namespace zeroth::monitor {

TEST_CASE("checksums are those of RFC 3720, B.4") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  CHECK(crc32c(rising) == 0x46dd794e);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c("") == 0);
}

}  // namespace zeroth::monitor
