#include "comm/cpu_collectives.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>

#include "tests/support/ranks.h"

namespace zeroth::comm::cpu_collectives_test {

TEST_CASE("the least and the greatest value are known to all ranks") {
  testing::run_ranks(3, [](std::shared_ptr<DeviceMesh> mesh) {
    CHECK(min_over_ranks(mesh->rank() == 1 ? -4 : 7, "numbers", *mesh) == -4);
    CHECK(max_over_ranks(mesh->rank() == 1 ? 15 : 0, "numbers", *mesh) == 15);
  });
}

TEST_CASE("ranks agree on doubles and on whole numbers that no double holds") {
  testing::run_ranks(3, [](std::shared_ptr<DeviceMesh> mesh) {
    std::array numbers = {0.1 * mesh->rank(), 1.0};
    all_reduce_values(numbers, ReduceOp::kSum, "numbers", *mesh);
    CHECK(numbers == std::array{0.1 * 0 + 0.1 * 1 + 0.1 * 2, 3.0});
    std::array whole = {(int64_t{1} << 60) + mesh->rank()};
    all_reduce_values(whole, ReduceOp::kMin, "whole numbers", *mesh);
    CHECK(whole[0] == int64_t{1} << 60);
  });
}

TEST_CASE("texts of any length come in the order of the ranks") {
  testing::run_ranks(3, [](std::shared_ptr<DeviceMesh> mesh) {
    CHECK(all_gather_strings("", "words", mesh->cpu_group()) == std::vector<std::string>(3));
    const std::vector<std::string> texts = {"", std::string("a\0b\xff", 4), std::string(7000, 'x')};
    CHECK(all_gather_strings(texts[static_cast<size_t>(mesh->rank())], "words",
                             mesh->cpu_group()) == texts);
  });
}

TEST_CASE("nobody is through a barrier before everybody has come to it") {
  std::atomic<int> came = 0;
  testing::run_ranks(3, [&](std::shared_ptr<DeviceMesh> mesh) {
    ++came;
    barrier(*mesh);
    CHECK(came == 3);
  });
}

}  // namespace zeroth::comm::cpu_collectives_test
