// A store that accepts only values of ranks that know the run's secret.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

namespace c10d {
class Store;
}

namespace zeroth::comm {

// Wraps `store`: appends an HMAC (base/sha256.h) of run, key and value to every value; get() throws
// an Error if it does not match. Counters (add) and the existence of keys cannot be signed: with
// them, and by deleting keys, a stranger can make ranks wait and attempts have too large indices
// (agree_on_attempt), but not make ranks accept a false value. A value arrives in full before it is
// checked, however long it is: c10d stores return no part of one.
c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  const std::string& secret, std::string run);

}  // namespace zeroth::comm
