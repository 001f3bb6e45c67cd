#include "base/files/crc32c.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/machine/cpu.h"

namespace zeroth::crc32c_fold_test {

TEST_CASE("folded CRCs are the table's, and what is copied is the same") {
  if (!detail::can_fold_crc()) return;
  std::vector<std::byte> bytes(64 * detail::kCrcFoldBytes + 3), copies(65 * detail::kCrcFoldBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 31 + i);
  const auto address = reinterpret_cast<uintptr_t>(copies.data());
  std::byte* const to = copies.data() + (-address) % detail::kCrcFoldAlignment;
  for (size_t folds = 2; folds <= 64; ++folds) {
    for (const uint32_t before : {0U, 1U, 0x80000000U, 0xffffffffU}) {
      const auto part =
          std::span<const std::byte>(bytes).subspan(folds % 4, folds * detail::kCrcFoldBytes);
      const uint32_t expected = detail::crc32c_by_table(part, before);
      CHECK(~detail::fold_crc(part, nullptr, ~before) == expected);
      std::fill(copies.begin(), copies.end(), std::byte{0});
      CHECK(~detail::fold_crc(part, to, ~before) == expected);
      CHECK(std::equal(part.begin(), part.end(), to));
    }
  }
}

TEST_CASE("nothing is folded where the processor is held down to what all have") {
  CHECK((cpu_isa() > CpuIsa::kBaseline || !detail::can_fold_crc()));
}

}  // namespace zeroth::crc32c_fold_test
