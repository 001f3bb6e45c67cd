#include "launcher/run/slots.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::slots_test {
namespace {

using Slots = std::vector<std::string>;

const Machine kTwoCores{{0, 1}, {}};
const Machine kFourGpus{{0, 1}, {"0", "1", "2", "3"}};

SlotChoice choose(const std::vector<std::string>& flags, Accelerator accelerator,
                  const Machine& machine) {
  std::vector<std::string> words = flags;
  words.push_back("prog");
  return choose_slots(parse_command_line(words), accelerator, machine);
}

SlotChoice on_gpus(const std::vector<std::string>& flags) {
  return choose(flags, Accelerator::kCuda, kFourGpus);
}

std::string error_of(const std::vector<std::string>& flags) {
  try {
    on_gpus(flags);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("of long lists of slots a message shows their beginning") {
  const std::string text(10'000, 'x');
  for (const std::string& slots : {text, "localhost:" + text, "localhost@" + text,
                                   "localhost:0,," + text, "localhost:0,0," + text}) {
    CAPTURE(slots.substr(0, 20));
    CHECK(error_of({"--include", slots}).find("... (100") != std::string::npos);
    CHECK(error_of({"--exclude", slots}).size() < 400);
  }
  CHECK(error_of({"--include", text, "--exclude", text}).size() < 400);
}

TEST_CASE("without flags every GPU gets a rank, and the CPU one rank") {
  CHECK(on_gpus({}).slots == Slots{"0", "1", "2", "3"});
  CHECK(on_gpus({}).num_ranks == 4);
  CHECK(choose({}, Accelerator::kCpu, kTwoCores).num_ranks == 1);
  CHECK(choose({}, Accelerator::kCpu, kFourGpus).num_ranks == 1);
}

TEST_CASE("--num_gpus takes the first GPUs, or that many CPU ranks") {
  CHECK(on_gpus({"--num_gpus=2"}).slots == Slots{"0", "1"});
  CHECK(choose({"--num_gpus=5"}, Accelerator::kCpu, kTwoCores).num_ranks == 5);
}

TEST_CASE("more ranks than GPUs need --share-gpus") {
  CHECK(error_of({"--num_gpus=5"}) ==
        "--num_gpus 5, but only 4 GPUs are visible (--share-gpus lets several ranks use one)");
  const SlotChoice shared = on_gpus({"--num_gpus=5", "--share-gpus"});
  CHECK(shared.slots == Slots{"0", "1", "2", "3"});
  CHECK(shared.num_ranks == 5);
  CHECK(shared.shared);
  CHECK_FALSE(on_gpus({"--num_gpus=4", "--share-gpus"}).shared);
}

TEST_CASE("include and exclude select slots in the machine's order") {
  CHECK(on_gpus({"--include", "localhost:2,0"}).slots == Slots{"0", "2"});
  CHECK(on_gpus({"--include", "localhost:2,0"}).num_ranks == 2);
  CHECK(on_gpus({"--include", "localhost"}).slots == Slots{"0", "1", "2", "3"});
  CHECK(on_gpus({"--exclude", "localhost:1,3"}).slots == Slots{"0", "2"});
  CHECK(choose({"-i", "localhost:0,1"}, Accelerator::kCpu, kTwoCores).num_ranks == 2);
  CHECK(choose({"-e", "localhost:0"}, Accelerator::kCpu, kTwoCores).slots == Slots{"1"});
}

TEST_CASE("the slots of a hostfile are numbers of visible GPUs, on the CPU just numbers") {
  const auto take = [](const std::vector<int>& slots, bool share = false) {
    return hostfile_slots(slots, Accelerator::kCuda, Machine{{0}, {"4", "GPU-7", "6"}}, share);
  };
  CHECK(take({0, 2}).slots == Slots{"4", "6"});
  CHECK(take({0, 2}).num_ranks == 2);
  CHECK_FALSE(take({0, 2}).shared);
  CHECK_THROWS_WITH_AS(take({1, 3}),
                       "slot 3, but only 3 GPUs are visible on this host (--share-gpus lets "
                       "several ranks use one)",
                       UsageError);
  CHECK(take({0, 1, 2, 3}, true).slots == Slots{"4", "GPU-7", "6"});
  CHECK(take({0, 1, 2, 3}, true).num_ranks == 4);
  CHECK(take({0, 1, 2, 3}, true).shared);
  CHECK(take({7, 8}, true).slots == Slots{"4", "GPU-7", "6"});
  const SlotChoice cpu = hostfile_slots({0, 9}, Accelerator::kCpu, kTwoCores, false);
  CHECK(cpu.num_ranks == 2);
  CHECK(cpu.slots == Slots{"0", "9"});
}

TEST_CASE("slots are the ids that CUDA_VISIBLE_DEVICES leaves") {
  const Machine machine{{0}, {"4", "GPU-ab12"}};
  CHECK(choose({"--num_gpus=1"}, Accelerator::kCuda, machine).slots == Slots{"4"});
  CHECK(choose({"-i", "localhost:GPU-ab12"}, Accelerator::kCuda, machine).slots ==
        Slots{"GPU-ab12"});
  CHECK_THROWS_AS(choose({"-i", "localhost:0"}, Accelerator::kCuda, machine), UsageError);
}

TEST_CASE("each wrong filter has its own error") {
  CHECK(error_of({"-i", "localhost:0,0"}) == "--include localhost:0,0: slot 0 is repeated");
  CHECK(error_of({"-i", "localhost:7"}) ==
        "--include localhost:7: unknown slot 7; localhost has 0,1,2,3");
  CHECK(error_of({"-e", "localhost:x"}) ==
        "--exclude localhost:x: unknown slot x; localhost has 0,1,2,3");
  CHECK(error_of({"-i", "worker-1:0"}) ==
        "--include worker-1:0: unknown host 'worker-1'; the only one is localhost");
  CHECK(error_of({"-i", "localhost:0@localhost:1"}) ==
        "--include localhost:0@localhost:1: localhost is named twice");
  CHECK(error_of({"-i", "localhost:"}) == "--include localhost:: a slot is missing");
  CHECK(error_of({"-i", "localhost:0,,1"}) == "--include localhost:0,,1: a slot is missing");
  CHECK(error_of({"-e", "localhost"}) == "--exclude localhost: no slot is left");
  CHECK(error_of({"-e", "localhost:0,1,2,3"}) == "--exclude localhost:0,1,2,3: no slot is left");
  CHECK(error_of({"-i", "localhost", "-e", "localhost:1"}) ==
        "--include localhost and --exclude localhost:1 cannot be combined");
  CHECK(error_of({"-i", "localhost:0", "--num_gpus=1"}) ==
        "--num_gpus 1 and --include cannot be combined");
  CHECK(error_of({"-e", "localhost:0", "--num_gpus=1"}) ==
        "--num_gpus 1 and --exclude cannot be combined");
}

}  // namespace zeroth::launcher::slots_test
