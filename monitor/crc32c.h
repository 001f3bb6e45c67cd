// The checksum of the Castagnoli polynomial (RFC 3720, B.4).
#pragma once

#include <cstdint>
#include <string_view>

namespace zeroth::monitor {

uint32_t crc32c(std::string_view bytes);

}  // namespace zeroth::monitor
