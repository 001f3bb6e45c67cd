#include "comm/agreement.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>

#include "tests/support/ranks.h"

namespace zeroth::comm {

TEST_CASE("the least and the greatest value are known to all ranks") {
  testing::run_ranks(3, [](std::shared_ptr<Mesh> mesh) {
    CHECK(least_over_ranks(mesh->rank() == 1 ? -4 : 7, "numbers", *mesh) == -4);
    CHECK(greatest_over_ranks(mesh->rank() == 1 ? 15 : 0, "numbers", *mesh) == 15);
  });
}

TEST_CASE("ranks agree on doubles and on whole numbers that no double holds") {
  testing::run_ranks(3, [](std::shared_ptr<Mesh> mesh) {
    std::array numbers = {0.1 * mesh->rank(), 1.0};
    agree(numbers, Reduce::kSum, "numbers", *mesh);
    CHECK(numbers == std::array{0.1 * 0 + 0.1 * 1 + 0.1 * 2, 3.0});
    std::array whole = {(int64_t{1} << 60) + mesh->rank()};
    agree(whole, Reduce::kMin, "whole numbers", *mesh);
    CHECK(whole[0] == int64_t{1} << 60);
  });
}

TEST_CASE("texts of any length come in the order of the ranks") {
  testing::run_ranks(3, [](std::shared_ptr<Mesh> mesh) {
    CHECK(gather_texts("", "words", mesh->host()) == std::vector<std::string>(3));
    const std::vector<std::string> texts = {"", std::string("a\0b\xff", 4), std::string(7000, 'x')};
    CHECK(gather_texts(texts[static_cast<size_t>(mesh->rank())], "words", mesh->host()) == texts);
  });
}

TEST_CASE("nobody is through a barrier before everybody has come to it") {
  std::atomic<int> came = 0;
  testing::run_ranks(3, [&](std::shared_ptr<Mesh> mesh) {
    ++came;
    barrier(*mesh);
    CHECK(came == 3);
  });
}

}  // namespace zeroth::comm
