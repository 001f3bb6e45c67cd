// Random numbers from the kernel, which no other process can predict: for secrets, ids, and seeds
// of hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeroth {

// Returns `count` bytes. Throws an Error if the kernel provides none.
std::string random_bytes(size_t count);

// Returns `num_bytes` random bytes as hexadecimal digits, for an id that no other process draws.
// Throws like random_bytes().
std::string random_hex(size_t num_bytes);

// Returns a random number. Throws like random_bytes().
uint64_t random_word();

}  // namespace zeroth
