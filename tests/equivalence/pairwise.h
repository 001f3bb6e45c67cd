// Few combinations that show every pair, or every three, of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace zeroth::equivalence {

// One value per factor.
using Combination = std::vector<size_t>;

// Every combination of values below `counts`, one for each factor; the last factor changes fastest.
std::vector<Combination> combinations(std::span<const size_t> counts);

// Some of `all`, in which every `strength` values that some member of `all` has together still
// meet. The same for the same list.
std::vector<Combination> covering(const std::vector<Combination>& all, size_t strength);

// covering(all, 2).
std::vector<Combination> pairwise(const std::vector<Combination>& all);

// pairwise(all); with ZEROTH_TEST_FULL covering(all, 3) and the others that `in_full` accepts, or
// at random as many of `all` as it says: "ROWS SEED". An empty `in_full` accepts none: a table of
// ten factors has tens of thousands of rows.
std::vector<Combination> chosen(const std::vector<Combination>& all,
                                const std::function<bool(const Combination&)>& in_full = {});

// So many of `all`, at random by the seed and each at most once.
std::vector<Combination> drawn(std::vector<Combination> all, size_t count, uint64_t seed);

}  // namespace zeroth::equivalence
