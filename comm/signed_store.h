// A store that believes only values of ranks that know the run's secret.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

namespace c10d {
class Store;
}

namespace zeroth::comm {

// `store`, with an HMAC (base/sha256.h) of run, key and value at the end of every value; get()
// throws an Error where it does not fit. Counters (add) and whether a key exists cannot be signed:
// with them, and by deleting keys, a stranger can make ranks wait and rounds have numbers too large
// (agree_on_attempt), but not make ranks believe anything else. A value comes whole before it is
// checked, however long: stores of c10d hand out no part of one.
c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  const std::string& secret, std::string run);

}  // namespace zeroth::comm
