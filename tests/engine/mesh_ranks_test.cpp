#include "engine/state/checkpointer.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/ranks.h"

namespace zeroth::engine::mesh_ranks_test {

TEST_CASE("texts of any length reach all ranks, byte by byte") {
  testing::run_ranks(3, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    MeshRanks ranks(*mesh);
    CHECK(ranks.size() == 3);
    CHECK(ranks.gather("") == std::vector<std::string>(3));
    const std::vector<std::string> texts = {"", std::string("a\0b\xff", 4),
                                            std::string(70'000, 'x')};
    CHECK(ranks.gather(texts[static_cast<size_t>(ranks.rank())]) == texts);
  });
}

}  // namespace zeroth::engine::mesh_ranks_test
