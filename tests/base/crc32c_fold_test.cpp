#include "base/files/crc32c_fold.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/files/crc32c.h"
#include "base/machine/cpu.h"

namespace zeroth {

TEST_CASE("folded CRCs are the table's, and what is copied is the same") {
  if (!can_fold_crc()) return;
  std::vector<std::byte> bytes(64 * kCrcFoldBytes + 3), copies(65 * kCrcFoldBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 31 + i);
  const auto address = reinterpret_cast<uintptr_t>(copies.data());
  std::byte* const to = copies.data() + (-address) % kCrcFoldAlignment;
  for (size_t folds = 2; folds <= 64; ++folds) {
    for (const uint32_t before : {0U, 1U, 0x80000000U, 0xffffffffU}) {
      const auto part = std::span<const std::byte>(bytes).subspan(folds % 4, folds * kCrcFoldBytes);
      const uint32_t expected = detail::crc32c_by_table(part, before);
      CHECK(~fold_crc(part, nullptr, ~before) == expected);
      std::fill(copies.begin(), copies.end(), std::byte{0});
      CHECK(~fold_crc(part, to, ~before) == expected);
      CHECK(std::equal(part.begin(), part.end(), to));
    }
  }
}

TEST_CASE("nothing is folded where the processor is held down to what all have") {
  CHECK((cpu_isa() > CpuIsa::kBaseline || !can_fold_crc()));
}

}  // namespace zeroth
