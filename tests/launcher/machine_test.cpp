#include "launcher/machine/machine.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.h"
#include "base/machine/cpu.h"

namespace zeroth::launcher::machine_test {

using Ids = std::vector<std::string>;

TEST_CASE("CUDA_VISIBLE_DEVICES selects GPUs as CUDA does") {
  CHECK(visible_gpus(2, std::nullopt) == Ids{"0", "1"});
  CHECK(visible_gpus(4, "2,0") == Ids{"2", "0"});
  CHECK(visible_gpus(4, "1, 3") == Ids{"1", "3"});
  CHECK(visible_gpus(4, "1,-1,2") == Ids{"1"});
  CHECK(visible_gpus(2, "1,2,0") == Ids{"1"});
  CHECK(visible_gpus(2, "GPU-12ab,MIG-3c") == Ids{"GPU-12ab", "MIG-3c"});
  CHECK(visible_gpus(2, "").empty());
  CHECK(visible_gpus(2, "0,0").empty());
  CHECK(visible_gpus(0, std::nullopt).empty());
  CHECK(visible_gpus(0, "0").empty());
}

TEST_CASE("DS_ACCELERATOR decides, else the presence of GPUs") {
  const Machine cpu{{0}, {}};
  const Machine gpu{{0}, {"0"}};
  CHECK(resolve_accelerator(std::nullopt, cpu) == Accelerator::kCpu);
  CHECK(resolve_accelerator(std::nullopt, gpu) == Accelerator::kCuda);
  CHECK(resolve_accelerator("", gpu) == Accelerator::kCuda);
  CHECK(resolve_accelerator("cpu", gpu) == Accelerator::kCpu);
  CHECK(resolve_accelerator("cuda", gpu) == Accelerator::kCuda);
  CHECK_THROWS_WITH_AS(resolve_accelerator("xpu", gpu),
                       "DS_ACCELERATOR is 'xpu'; must be cpu or cuda", Error);
  CHECK_THROWS_AS(resolve_accelerator("cuda", cpu), Error);
}

TEST_CASE("DEEPSPEED_TIMEOUT is whole minutes") {
  for (const char* good : {"", "1", "600"}) CHECK_NOTHROW(check_timeout(std::string(good)));
  CHECK_NOTHROW(check_timeout(std::nullopt));
  for (const char* bad : {"0", "-1", "1.5", "soon", "5m", " 5"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH_AS(check_timeout(std::string(bad)),
                         doctest::Contains("must be whole minutes, at least 1"), Error);
  }
}

TEST_CASE("the machine's cores are those of the process's own mask") {
  const std::vector<int> allowed = allowed_cores();
  std::vector<int> cores = probe_machine({"cpu", {}, ""}).cores;
  std::sort(cores.begin(), cores.end());
  CHECK(cores == allowed);
}

}  // namespace zeroth::launcher::machine_test
