// Files gone wrong, the same in every run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::fuzz {

// One of `originals` after a few changes that `seed` chooses: bits, bytes, numbers, pieces that go,
// come twice or come from another original. At least one original.
std::string mutant(const std::vector<std::string>& originals, uint64_t seed);

// The same of JSON, which stays JSON: values become others, of any type or of another original, and
// keys come and go. Returns nothing if the original that `seed` chooses is no JSON object.
std::optional<std::string> json_mutant(const std::vector<std::string>& originals, uint64_t seed);

}  // namespace zeroth::fuzz
