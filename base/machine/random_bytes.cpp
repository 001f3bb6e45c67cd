#include "base/machine/random_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error("cannot read random bytes from the system: {}", system_reason(errno));
    done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string random_hex(size_t num_bytes) {
  return to_hex(random_bytes(num_bytes));
}

uint64_t random_word() {
  uint64_t word = 0;
  std::memcpy(&word, random_bytes(sizeof(word)).data(), sizeof(word));
  return word;
}

}  // namespace zeroth
