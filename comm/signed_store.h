// A store that believes only values of ranks that know the run's secret.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <string_view>

namespace c10d {
class Store;
}

namespace zeroth::comm {

// `store`, with a keyed digest of run, key and value at the end of every value; get() throws an
// Error where it does not fit. Counters (add) and whether a key exists cannot be signed: with them,
// and by deleting keys, a stranger can make ranks wait, but not make them believe anything. A value
// comes whole before it is checked, however long: stores of c10d hand out no part of one.
c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  std::string secret, std::string run);

// HMAC (RFC 2104) over SHA-1, which LibTorch brings: 40 hexadecimal digits. That collisions of
// SHA-1 can be made does not help to forge an HMAC without its key.
std::string keyed_digest(std::string_view secret, std::string_view text);

// Compares them in a time that does not tell where they differ.
bool same_digest(std::string_view one, std::string_view other);

}  // namespace zeroth::comm
