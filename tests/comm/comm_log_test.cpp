#include "comm/comm_log.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <set>

#include "comm/cpu_collectives.h"
#include "tests/support/ranks.h"

namespace zeroth::comm::comm_log_test {
namespace {

using CollectiveKey = CommLog::CollectiveKey;

// The counts of every rank are equal; rank 0's are returned.
std::map<CollectiveKey, int64_t> counts_of(const configs::CommsLoggerConfig& config,
                                           const std::function<void(DeviceMesh&)>& fn) {
  std::map<CollectiveKey, int64_t> counts;
  testing::run_ranks(2, [&](std::shared_ptr<DeviceMesh> mesh) {
    mesh->log_collectives(config);
    fn(*mesh);
    if (mesh->rank() != 0) return;
    for (const auto& [key, total] : mesh->comm_log()->totals()) {
      counts[key] = total.count;
      CHECK(total.seconds > 0);
    }
  });
  return counts;
}

void some_collectives(DeviceMesh& mesh) {
  Group& group = mesh.world();
  for (int i = 0; i < 3; ++i) group.all_reduce(torch::zeros({256}), ReduceOp::kSum, "sums").wait();
  group.all_reduce(torch::zeros({1}), ReduceOp::kMax, "a norm").wait();
  group.all_gather(torch::zeros({512}), torch::zeros({256}), "parameters").wait();
  group.reduce_scatter(torch::zeros({256}), torch::zeros({512}), "gradients").wait();
  group.broadcast(torch::zeros({2}, torch::kLong), 0, "seeds").wait();
  barrier(mesh);
}

}  // namespace

TEST_CASE("the logger's totals are those of the collectives, by operation and size of the whole") {
  const auto counts = counts_of({.enabled = true}, some_collectives);
  const std::map<CollectiveKey, int64_t> expected = {{{"all_reduce", 1024, 2}, 3},
                                                     {{"all_reduce", 4, 2}, 1},
                                                     {{"all_gather_into_tensor", 2048, 2}, 1},
                                                     {{"reduce_scatter_tensor", 2048, 2}, 1},
                                                     {{"broadcast", 16, 2}, 1},
                                                     {{"barrier", 8, 2}, 1}};
  CHECK((counts == expected));
}

TEST_CASE("only the named operations are counted; debug names whose data it was") {
  const auto counts =
      counts_of({.enabled = true, .prof_all = false, .prof_ops = {"all_reduce"}, .debug = true},
                some_collectives);
  const std::map<CollectiveKey, int64_t> expected = {{{"all_reduce (sums)", 1024, 2}, 3},
                                                     {{"all_reduce (a norm)", 4, 2}, 1}};
  CHECK((counts == expected));
}

TEST_CASE("results are the same with the logger on, and a collective has ended when it returns") {
  testing::run_ranks(2, [](std::shared_ptr<DeviceMesh> mesh) {
    mesh->log_collectives({.enabled = true});
    const torch::Tensor sum = torch::full({3}, mesh->rank() + 1.0);
    CHECK(mesh->world().all_reduce(sum).done());
    CHECK(at::equal(sum, torch::full({3}, 3.0)));
    CHECK(mesh->world().times().collectives == 1);
  });
}

TEST_CASE("bus bandwidth follows nccl-tests: 2 (n-1)/n, (n-1)/n, or 1 of the algorithm's") {
  CHECK(CommLog::bandwidth({"all_reduce", 2'000'000'000, 4}, 1).algorithm == doctest::Approx(2));
  CHECK(CommLog::bandwidth({"all_reduce", 2'000'000'000, 4}, 1).bus == doctest::Approx(3));
  CHECK(CommLog::bandwidth({"all_gather_into_tensor", 2'000'000'000, 4}, 0.5).bus ==
        doctest::Approx(3));
  CHECK(CommLog::bandwidth({"reduce_scatter_tensor", 2'000'000'000, 4}, 0.5).bus ==
        doctest::Approx(3));
  CHECK(CommLog::bandwidth({"broadcast", 2'000'000'000, 4}, 1).bus == doctest::Approx(2));
}

TEST_CASE("the table has a line for each operation and size; verbose has one for each collective") {
  CommLog log({.enabled = true, .verbose = true});
  CHECK(log.table().empty());
  log.add({"all_reduce", 1 << 20, 2}, "sums", 0.001);
  log.add({"all_reduce", 1 << 20, 2}, "sums", 0.003);
  log.add({"broadcast", 16, 2}, "seeds", 0.001);
  const auto table = log.table();
  REQUIRE(table.size() == 3);
  CHECK(table[1].find("all_reduce") == 0);
  CHECK(table[1].find("1.00 MiB") != std::string::npos);
  CHECK(table[1].find("4.00      2.000          4.19          4.19") != std::string::npos);
  const auto lines = log.take_lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] ==
        "comm op: all_reduce | time (ms): 1.00 | msg size: 1.00 MiB | algbw (Gbps): 8.39 | busbw "
        "(Gbps): 8.39");
  CHECK(log.take_lines().empty());
}

}  // namespace zeroth::comm::comm_log_test
