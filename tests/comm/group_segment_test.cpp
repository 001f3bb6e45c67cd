#include "comm/groups/group_segment.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::group_segment_test {
namespace {

const Partition kParts{"tensor", {{0, 2}, {1}, {3, 4}}};

}  // namespace

TEST_CASE("the ranks of a part share memory that no other part has") {
  testing::run_ranks(5, [](std::shared_ptr<DeviceMesh> mesh) {
    const auto segment = make_group_segment(mesh->cpu_group(), kParts, 4096, "run");
    REQUIRE((segment == nullptr) == (mesh->rank() == 1));
    if (segment && (mesh->rank() == 0 || mesh->rank() == 3))
      segment->data()[0] = std::byte(mesh->rank() + 10);
    barrier(*mesh);
    if (segment) CHECK(segment->data()[0] == std::byte(mesh->rank() < 3 ? 10 : 13));
    barrier(*mesh);
  });
}

TEST_CASE("all ranks learn that one cannot share, and why") {
  testing::run_ranks(5, [](std::shared_ptr<DeviceMesh> mesh) {
    const size_t bytes = mesh->rank() == 4 ? 8192 : 4096;
    const std::string message =
        message_of<Error>([&] { make_group_segment(mesh->cpu_group(), kParts, bytes, "run"); });
    CHECK(message ==
          "the ranks of 'tensor' cannot share memory: rank 4: the shared memory has 4096 bytes, "
          "but 8192 were agreed on");
  });
}

TEST_CASE("a table of a part calls its ranks by their numbers in the world") {
  testing::run_ranks(5, [](std::shared_ptr<DeviceMesh> mesh) {
    const auto table = make_group_table(mesh->cpu_group(), kParts, "run");
    barrier(*mesh);
    if (mesh->rank() == 3) {
      const std::string text = table->explain(1, {});
      CHECK(text.find("no rank arrived; missing: rank 3 (") == 0);
      CHECK(text.find("; rank 4 (") != std::string::npos);
    }
    barrier(*mesh);
  });
}

}  // namespace zeroth::comm::group_segment_test
