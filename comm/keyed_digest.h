// Tells whether a text comes from somebody who knows a secret.
#pragma once

#include <string>
#include <string_view>

namespace zeroth::comm {

// HMAC (RFC 2104) over SHA-1, which LibTorch brings: 40 hexadecimal digits. That collisions of
// SHA-1 can be made does not help to forge an HMAC without its key.
std::string keyed_digest(std::string_view secret, std::string_view text);

// Whether two digests are equal, in a time that does not tell where they differ.
bool same_digest(std::string_view one, std::string_view other);

}  // namespace zeroth::comm
